"""What the kinds of component share: tokens and contexts of attentions, caches, fused projections,
reports, and descriptions of parameters.
"""

from xformer_kit.tensors.cache import Cache, JointCache, KeyValueCache, StateCache
from xformer_kit.tensors.parameters import (
    Info,
    ParameterInfo,
    SubmoduleInfo,
    canonical,
    embedding,
    hidden,
    owned_parameters,
    parameter_table,
    training_buffers,
    vector,
)
from xformer_kit.tensors.precision import at_least_fp32, no_autocast
from xformer_kit.tensors.short_conv import ShortConvolution
from xformer_kit.tensors.tokens import (
    AttentionContext,
    FFNContext,
    Tokens,
    after_extras,
    document_segments,
    expand_heads,
    masked_weights,
    scaled_to_unit,
)
