"""How are scores computed? Which kernel, and why?"""

from xformer_kit.kernel.base import KERNELS, Kernel, choose, visible
from xformer_kit.kernel.reference import Reference
from xformer_kit.kernel.sdpa import SDPA

__all__ = ["KERNELS", "SDPA", "Kernel", "Reference", "choose", "visible"]
