"""Masks that leave gaps, so that a long text costs less.

Distances are counted in slots. What has a place in a text (chunks, blocks, its first tokens) is
counted in positions, which leave out padding and restart with a document: a padded row then equals
the row alone.
"""

from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from xformer_kit.mask.base import MASKS, Mask
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import Fault, at_least, shown


@dataclass(frozen=True)
class Sparse(Mask):
    """Base: a pattern, of which a causal mask shows what came before."""

    causal: bool = True  # whether only what came before is seen

    def pattern(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        """As `allows`, in both directions."""
        raise NotImplementedError

    def allows(self, query, key, head):
        seen = self.pattern(query, key, head)
        return seen & (key.slot <= query.slot) if self.causal else seen

    @property
    def sees_future(self):
        return not self.causal


@MASKS.register("chunked", also_called=("chunk", "local_chunks", "block_local", "blocked"))
@dataclass(frozen=True)
class Chunked(Sparse):
    """A token sees those of its own chunk: floor(i / chunk) = floor(j / chunk) (Llama 4, Meta,
    2025: `attention_chunk_size`; Child et al., 2019, arXiv:1904.10509, section 4.3, the first of
    the fixed patterns).

    Chunks of several sizes stand in their order at the start of a text, and the last size goes on
    (DeepSpeed, 2020: the local windows of its `VariableSparsityConfig`, which is any_of [chunked,
    global_tokens, random_blocks]).
    """

    breaks = {"shift": "chunks are counted from the start of a text"}

    chunk: int | tuple[int, ...] = 256  # tokens; of several sizes the last goes on

    @classmethod
    def check(cls, options, context):
        sizes = (options.chunk,) if isinstance(options.chunk, int) else options.chunk
        if not sizes:
            yield Fault(
                "chunk",
                "must be a number of tokens, or a list of at least one",
                got=shown(options.chunk),
            )
        elif min(sizes) < 1:
            yield Fault("chunk", "must be at least 1 token", got=shown(options.chunk))

    def pattern(self, query, key, head):
        return self._of(query.position) == self._of(key.position)

    def _of(self, position: Tensor) -> Tensor:
        """The number of a token's chunk."""
        if isinstance(self.chunk, int):
            return position // self.chunk
        start = sum(self.chunk[:-1])
        number = (position - start).clamp(min=0) // self.chunk[-1]
        for end in accumulate(self.chunk[:-1]):
            number = number + (position >= end)
        return number


@MASKS.register("global_tokens", also_called=("global", "global_attention", "longformer"))
@dataclass(frozen=True)
class GlobalTokens(Sparse):
    """The first `count` tokens of a text see all and are seen by all; others see nothing else
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
