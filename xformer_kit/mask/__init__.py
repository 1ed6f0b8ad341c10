"""Attention masks: predicates on a query token and a key token."""

from xformer_kit.mask.algebra import AllOf, AnyOf, Not, PerHead
from xformer_kit.mask.band import Causal, Full, Prefix, SlidingWindow
from xformer_kit.mask.base import INF, MASKS, Mask, matrix
from xformer_kit.mask.sparse import ChunkedMask, GlobalTokens, Sparse
