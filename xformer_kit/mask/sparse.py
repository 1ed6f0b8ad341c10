"""Masks that leave gaps, so that a long text costs less.

Distances are counted in slots. What has a place in a text (chunks, blocks, its first tokens) is
counted in positions, which leave out padding and restart with a document: a padded row then equals
the row alone.
"""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from xformer_kit.mask.base import INF, MASKS, Mask
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import at_least, shown


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


@MASKS.register("dilated", also_called=("dilated_window", "dilated_sliding_window"))
@dataclass(frozen=True)
class Dilated(Sparse):
    """A token sees every `step`-th token before it, itself first, `window` of them: distances that
    `step` divides (Beltagy et al., 2020, arXiv:2004.05150, section 3.1).
    """

    step: int = 2  # tokens from one that is seen to the next
    # tokens that are seen to a side, the query's own included; null is all
    window: int | None = None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", step=1, window=1)

    def pattern(self, query, key, head):
        distance = query.slot - key.slot
        seen = distance % self.step == 0
        return seen if self.window is None else seen & (distance.abs() < self.window * self.step)

    def band(self):
        if self.step > 1:
            return None
        left = INF if self.window is None else self.window - 1
        return left, 0 if self.causal else left


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

    chunk: int | tuple[int, ...] = 256  # tokens; of several sizes the last goes on

    @classmethod
    def check(cls, options, context):
        sizes = (options.chunk,) if isinstance(options.chunk, int) else options.chunk
        if not sizes:
            yield (
                "chunk: must be a number of tokens, or a list of at least one; got"
                f" {shown(options.chunk)}."
            )
        elif min(sizes) < 1:
            yield f"chunk: must be at least 1 token; got {shown(options.chunk)}."

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

    @property
    def absolute(self):
        return True


@MASKS.register("global_tokens", also_called=("global", "global_attention", "longformer"))
@dataclass(frozen=True)
class GlobalTokens(Sparse):
    """The first `count` tokens of a text see all and are seen by all; others see nothing else
    (Beltagy et al., 2020, arXiv:2004.05150, section 3.1). Longformer itself is any_of
    [sliding_window causal=false, global_tokens causal=false].
    """

    count: int = 1  # tokens

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", count=1)

    def pattern(self, query, key, head):
        return (query.position < self.count) | (key.position < self.count)

    @property
    def absolute(self):
        return True


@dataclass(frozen=True)
class Factorized(Sparse):
    """Base of the two patterns of the Sparse Transformer (Child et al., 2019, arXiv:1904.10509,
    section 4.3).
    """

    stride: int = 128  # tokens
    # whether a head sees both patterns; else even heads see the first, odd ones the second
    merged: bool = True

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", stride=1, summary=1)

    def joined(self, near: Tensor, far: Tensor, head: Tensor) -> Tensor:
        return near | far if self.merged else torch.where(head % 2 == 0, near, far)

    @property
    def per_head(self):
        return not self.merged


@MASKS.register("strided", also_called=("sparse_strided",))
@dataclass(frozen=True)
class Strided(Factorized):
    """A token sees the `stride` tokens before it and every stride-th one (Child et al., 2019,
    arXiv:1904.10509, section 4.3).

    {j: i - j <= stride} and {j: (i - j) mod stride = 0}: for texts with a period, such as the rows
    of an image.
    """

    def pattern(self, query, key, head):
        distance = query.slot - key.slot
        return self.joined(distance.abs() <= self.stride, distance % self.stride == 0, head)


@MASKS.register("fixed", also_called=("sparse_fixed",))
@dataclass(frozen=True)
class Fixed(Factorized):
    """A token sees its own block and the last tokens of all blocks (Child et al., 2019,
    arXiv:1904.10509, section 4.3).

    {j: floor(j / stride) = floor(i / stride)} and {j: j mod stride >= stride - summary}.
    """

    summary: int = 8  # tokens at the end of a block that later ones see

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        if options.summary > options.stride >= 1:
            yield (
                f"summary: must be at most mask.stride; got {options.summary} and {options.stride}."
                f" Try {options.stride}."
            )

    def pattern(self, query, key, head):
        near = query.position // self.stride == key.position // self.stride
        return self.joined(near, key.position % self.stride >= self.stride - self.summary, head)

    @property
    def absolute(self):
        return True


class Drawn(Sparse):
    """Base of those that a hash of places and a seed draws."""

    seed: int
    alike: bool

    def drawn(self, number: Tensor, head: Tensor) -> Tensor:
        """32 bits of a place, and of the head where heads differ."""
        drawn = _hashed(number.long() + (self.seed * 0x9E3779B9 & 0xFFFFFFFF))
        return drawn if self.alike else _hashed(drawn + head.long() * 0x85EBCA6B)

    @property
    def per_head(self):
        return not self.alike

    @property
    def absolute(self):
        return True


@MASKS.register("random_blocks", also_called=("random", "big_bird", "bigbird"))
@dataclass(frozen=True)
class RandomBlocks(Drawn):
    """Every block of tokens draws `count` blocks, itself and what came before it, and sees them;
    without `causal` those that are drawn see it too (Zaheer et al., 2020, arXiv:2007.14062, section
    2). BigBird itself is any_of [random_blocks, sliding_window, global_tokens], each with
    causal=false.
    """

    # Paper: a query draws among all keys.   Here: among those before it, so that the draw knows no
    # length, and what is seen does not change as a text grows. The same block may be drawn twice.

    block: int = 64  # tokens
    count: int = 3  # blocks that a block draws
    seed: int = 0  # of the draw
    alike: bool = True  # whether all heads see the same blocks

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, block=1, count=1)

    def pattern(self, query, key, head):
        one, other = query.position // self.block, key.position // self.block
        later, earlier = torch.maximum(one, other), torch.minimum(one, other)
        drawn = self.drawn(later, head)
        seen = _hashed(drawn) % (later + 1) == earlier
        for turn in range(1, self.count):
            seen = seen | (_hashed(drawn + turn * 0xC2B2AE35) % (later + 1) == earlier)
        return seen


@MASKS.register("random_keys", also_called=("random_tokens", "random_pattern"))
@dataclass(frozen=True)
class RandomKeys(Drawn):
    """A query sees a key that is d tokens away with the probability p_d that is given, each pair
    drawn by itself and once for all (xformers, Meta, 2021:
    `random_pattern_from_probability_matrix`). Erdős-Rényi graphs, which one p makes, are those from
    which BigBird starts (Zaheer et al., 2020, arXiv:2007.14062, section 2).
    """

    # xformers draws so many pairs of a matrix of probabilities.   Here: each pair by a hash of the
    # two places and the seed, so that the draw knows no length, and what is seen does not change as
    # a text grows.

    probabilities: tuple[float, ...] = (
        1.0,
        0.5,
        0.25,
        0.1,
    )  # of distance 0, 1, ...; the last goes on
    seed: int = 0  # of the draw
    alike: bool = True  # whether all heads see the same tokens

    @classmethod
    def check(cls, options, context):
        given = options.probabilities
        if not given or min(given) < 0 or max(given) > 1:
            yield (
                f"probabilities: must list at least one number from 0 to 1; got {shown(given)}. Try"
                " [1.0, 0.5]."
            )
        elif not any(given):
            yield (
                f"probabilities: must not all be 0, or no token sees any; got {shown(given)}. Try"
                " [1.0, 0.5]."
            )

    def pattern(self, query, key, head):
        drawn = _hashed(self.drawn(query.position, head) + key.position.long() * 0xC2B2AE35)
        distance = (query.position - key.position).abs()
        seen = drawn < _share(self.probabilities[-1])
        for d, p in enumerate(self.probabilities[:-1]):
            seen = torch.where(distance == d, drawn < _share(p), seen)
        return seen


def _share(probability: float) -> int:
    """How many of the 2^32 hashes are as likely together."""
    return round(probability * 2**32)


def _hashed(x: Tensor) -> Tensor:
    """32 bits that look random, of an integer: Wellons' "lowbias32" (2018), in the low half of
    64-bit integers.
    """
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
