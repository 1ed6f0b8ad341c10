"""Sparse masks, which make long texts cheaper.

Distances are counted in slots. Chunks, blocks and the first tokens of a text are counted in
positions, which skip padding and restart with each document, so padding does not change the result.
"""

from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from xformer_kit.mask.base import MASKS, Mask
from xformer_kit.registry import Fault, at_least, format_value
from xformer_kit.tensors.tokens import Tokens

LIST_OF_SIZES = "must be a number of tokens, or a list of at least one"


@dataclass(frozen=True)
class Sparse(Mask):
    """Base: a pattern in both directions, which `causal` limits to earlier tokens."""

    causal: bool = True  # whether later tokens are hidden

    def pattern(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        """Like `allows`, in both directions."""
        raise NotImplementedError

    def allows(self, query, key, head):
        seen = self.pattern(query, key, head)
        return seen & (key.slot <= query.slot) if self.causal else seen

    @property
    def sees_future(self):
        return not self.causal


@MASKS.register("chunked", also_called=("chunk", "local_chunks", "block_local", "blocked"))
@dataclass(frozen=True)
class ChunkedMask(Sparse):
    """Each token attends to the tokens of its own chunk: floor(i / chunk) = floor(j / chunk) (Llama
    4, Meta, 2025: `attention_chunk_size`; Child et al., 2019, arXiv:1904.10509, section 4.3, the
    first of the fixed patterns).

    With several sizes, the chunks at the start of a text have these sizes in order, and all further
    chunks have the last size (DeepSpeed, 2020: the local windows of its `VariableSparsityConfig`,
    which is any_of [chunked, global_tokens, random_blocks]).
    """

    breaks = {"shift": "chunks are counted from the start of a text"}

    chunk: int | tuple[int, ...] = 256  # tokens; of several sizes the last is repeated

    @classmethod
    def check(cls, options, context):
        sizes = (options.chunk,) if isinstance(options.chunk, int) else options.chunk
        rule = "must be at least 1 token" if sizes else LIST_OF_SIZES
        if not sizes or min(sizes) < 1:
            yield Fault("chunk", rule, got=format_value(options.chunk))

    def pattern(self, query, key, head):
        return self._chunk_index(query.position) == self._chunk_index(key.position)

    def _chunk_index(self, position: Tensor) -> Tensor:
        """Returns the index of each token's chunk."""
        if isinstance(self.chunk, int):
            return position // self.chunk
        start = sum(self.chunk[:-1])
        number = (position - start).clamp(min=0) // self.chunk[-1]
        for end in accumulate(self.chunk[:-1]):
            number = number + (position >= end)
        return number


@MASKS.register("global_tokens", also_called=("global", "global_attention"))
@dataclass(frozen=True)
class GlobalTokens(Sparse):
    """The first `count` tokens of a text attend to all tokens and all tokens attend to them
    (Beltagy et al., 2020, arXiv:2004.05150, section 3.1). Longformer itself is any_of
    [sliding_window causal=false, global_tokens causal=false].
    """

    breaks = {"shift": "the first tokens are those at the start of a text"}

    count: int = 1  # tokens

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", count=1)

    def pattern(self, query, key, head):
        return (query.position < self.count) | (key.position < self.count)
