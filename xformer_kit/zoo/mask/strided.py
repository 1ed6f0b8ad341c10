"""The last tokens, and every stride-th one."""

from dataclasses import dataclass

from xformer_kit.mask import MASKS
from xformer_kit.zoo.mask._factorized import Factorized


@MASKS.register("strided", also_called=("sparse_strided",))
@dataclass(frozen=True)
class Strided(Factorized):
    """A token sees the `stride` tokens before it and every stride-th one (Child et al., 2019,
    arXiv:1904.10509, section 4.3).

    {j: i - j <= stride} and {j: (i - j) mod stride = 0}: for texts with a period, such as the rows
    of an image.
    """

    variants = [{"merged": False}]

    def pattern(self, query, key, head):
        distance = query.slot - key.slot
        return self.combined(distance.abs() <= self.stride, distance % self.stride == 0, head)
