"""What the kinds of component share: tokens and contexts of attentions, caches, fused projections,
reports, and descriptions of parameters.
"""

from xformer_kit.tensors.cache import StateCache
from xformer_kit.tensors.parameters import (
    Info,
    ParameterInfo,
    SubmoduleInfo,
    canonical,
    embedding,
    hidden,
    owned_parameters,
    parameter_table,
    vector,
)
from xformer_kit.tensors.short_conv import ShortConvolution
