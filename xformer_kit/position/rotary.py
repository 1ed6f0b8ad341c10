"""Rotary position: rotations of queries and keys."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from xformer_kit.position.base import POSITIONS, Position
from xformer_kit.position.scaling import NO_SCALING, Scaling
from xformer_kit.registry import Context, Fault, above, at_least
from xformer_kit.registry.messages import in_open_range
from xformer_kit.tensors.tokens import Tokens

Table = tuple[Tensor, Tensor]
AHEAD = 64  # positions whose table generation computes at once


class RotaryTables(NamedTuple):
    """Cosines and signed sines of one forward.

    Shapes for pairs (i, i + r / 2): (b, 1, t, 1, r / 2) and (b, 1, t, 2, r / 2); for pairs (2i, 2i
    + 1): (b, 1, t, r / 2, 1) and (b, 1, t, r / 2, 2). The first r channels of a head are rotated.
    """

    query: Tokens
    of_query: Table
    of_key: Table
    rotated_channels: int  # r
    interleaved: bool
    # (n, heads): the last n of the query heads are rotated; None: all
    rotated_heads: tuple[int, int] | None

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        if self.rotated_heads is None:
            return self._rotated(x, tokens)
        rotated, heads = self.rotated_heads
        rest = x.shape[1] - x.shape[1] * rotated // heads
        return torch.cat([x[:, :rest], self._rotated(x[:, rest:], tokens)], 1)

    def rotate_both(
        self, q: Tensor, k: Tensor, query: Tokens, key: Tokens
    ) -> tuple[Tensor, Tensor]:
        """`rotate` of queries (b, h, t, d) and `rotate_key` of keys (b, kv, t, d), with half the
        operations if both have the same angles.
        """
        if query.slot is not key.slot or self.rotated_heads is not None:
            return self.rotate(q, query), self.rotate_key(k, key)
        both = self._rotated(torch.cat([q, k], 1), query)
        q, k = torch.split_with_sizes(both, [q.shape[1], k.shape[1]], 1)
        return q, k

    def _rotated(self, x: Tensor, tokens: Tokens) -> Tensor:
        table = self.of_query if tokens.slot is self.query.slot else self.of_key
        r = self.rotated_channels
        if r == x.shape[-1]:
            return self._rotate_pairs(x, table)
        return torch.cat([self._rotate_pairs(x[..., :r], table), x[..., r:]], -1)

    def rotate_key(self, x: Tensor, tokens: Tokens) -> Tensor:
        return self.rotate(x, tokens)

    def _rotate_pairs(self, x: Tensor, table: Table) -> Tensor:
        """Rotates pairs of channels by the angles of a table: (a, b) cos + (b, a) (-sin, sin)."""
        cos, sin = table
        if cos.dtype != x.dtype:
            cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        # (b, h, t, r) -> (b, h, t, 2, r / 2), or (b, h, t, r / 2, 2)
        shape = (-1, 2) if self.interleaved else (2, -1)
        pair = x.view(*x.shape[:-1], *shape)  # `unflatten` takes 2 calls more
        # Two passes over x, instead of eight over halves of it with one formula per half.
        swapped = pair.flip(-1 if self.interleaved else -2)
        return (pair * cos).addcmul_(swapped, sin).flatten(-2)


@POSITIONS.register("rotary", also_called=("rope",))
class Rotary(Position):
    """Rotates pair i of r channels of a head by position * theta^(-2i / r), in queries and keys (Su
    et al., 2021, arXiv:2104.09864, eq. 34).

    Scores then depend only on distances. The first r = fraction * head_dim channels are rotated, as
    in GPT-J and GPT-NeoX (Black et al., 2022, arXiv:2204.06745, section 2.1).
    rotated_heads: the other heads have no position encoding, as some layers in Yang et al., 2025,
    arXiv:2501.18795. The length is unlimited; `scaling` changes the rates for texts longer than in
    training.
    """

    # Paper: pairs (0, 1), (2, 3), ..., here interleaved.   Default: pairs (i, i + r / 2), as in
    # GPT-NeoX and Llama. The two differ by a fixed permutation of channels, which the query and key
    # projections absorb.

    enters: tuple[str, ...] = ("rotate",)

    def __init__(
        self,
        head_dim: int,
        max_len: int,
        heads: int = 1,
        *,
        theta: float = 10_000.0,  # base of the wavelengths, tokens
        # query heads that are rotated with their keys, the last ones; null is all
        rotated_heads: int | None = None,
        fraction: float = 1.0,  # share of a head's channels that are rotated, the first ones
        # channel i with i + r / 2, or 2i with 2i + 1
        pairing: Literal["half", "interleaved"] = "half",
        scaling: Scaling = NO_SCALING,  # how rates change for texts longer than in training
    ):
        super().__init__()
        # The table of the next positions in generation: the first one, cosines, sines, and the
        # options that they are for.
        self.ahead: tuple[int, Tensor, Tensor, Any] | None = None
        self.rotated_channels = int(head_dim * fraction)
        self.theta = theta
        self.trained_len = max_len
        self.rotated_heads = None if rotated_heads in (None, heads) else (rotated_heads, heads)
        self.interleaved = pairing == "interleaved"
        self.scaling = scaling

    @classmethod
    def check(cls, options, context):
        yield from above(options, theta=0)
        yield from at_least(options, "head", rotated_heads=1)
        yield from in_open_range(options, "", closed=True, fraction=(0, 1))

    @classmethod
    def cannot(cls, options, context):
        head_dim = context.attn.head_dim
        if not head_dim:
            return  # a fault of the attention
        faults = [*odd_channel_fault(context, options.fraction)]
        rotated, heads = options.rotated_heads, context.attn.heads
        group = heads // context.attn.kv_heads
        if rotated is not None and (rotated > heads or rotated % group):
            rule = f"must be a multiple of the {group} heads that share a key, at most attn.heads"
            got, fix = f"{rotated} and {heads}", f"Try {heads}, or null."
            faults.append(Fault("rotated_heads", rule, got, fix))
        if faults:
            yield faults[0]
            return
        name, scaling = options.scaling["name"], options.scaling.create()
        pairs = int(head_dim * options.fraction) // 2
        if scaling.pairs() not in (None, pairs):
            yield Fault(
                "scaling",
                f"'{name}' must have a number for each of the {pairs} pairs of channels",
                got=scaling.pairs(),
            )
        elif scaling.by_length and context.cross:
            yield Fault(
                "scaling",
                f"'{name}' depends on the length of one text, and cross attention has two",
                fix="Use another scaling there.",
            )

    def prepare(self, query: Tokens, key: Tokens, cached: int = 0) -> RotaryTables:
        table = self._table(query)
        of_key = table if key.position is query.position else self._table(key)
        return RotaryTables(
            query,
            table,
            of_key,
            self.rotated_channels,
            self.interleaved,
            self.rotated_heads,
        )

    def score_gain(self) -> float:
        return self.scaling.score_gain()

    def needs_recompute(self, cached: Tokens, total: int) -> bool:
        uneven = cached.real is not None or cached.document is not None
        return self.scaling.needs_recompute(cached.length, total, uneven, self.trained_len)

    def _table(self, tokens: Tokens) -> Table:
        """The cosines and signed sines of the tokens' angles, times the scaling's gain, for all
        heads.
        """
        position: Any = tokens.position
        # One token in generation on a CPU, where its position can be read without waiting.
        single = position.numel() == 1 and type(position) is Tensor and position.is_cpu
        single = single and not position.is_floating_point()
        traced = single and (torch.compiler.is_compiling() or torch.jit.is_tracing())
        if not single or traced or self.scaling.by_length:
            return self._waves(tokens)
        return self._of_position(int(position))

    def _of_position(self, at: int) -> Table:
        """The same of one position, from those of AHEAD positions that are computed at once."""
        options = self.theta, self.scaling, self.trained_len
        ahead = self.ahead
        if ahead is None or not 0 <= at - ahead[0] < AHEAD or ahead[3] != options:
            with torch.inference_mode(False):  # training may use it, too
                position = torch.arange(at, at + AHEAD, device="cpu")[None]
                ahead = at, *self._waves(Tokens(position=position)), options
            self.__dict__["ahead"] = ahead  # `__setattr__` is for modules and parameters
        first, cos, sin, _ = ahead
        return cos.narrow(2, at - first, 1), sin.narrow(2, at - first, 1)

    def _waves(self, tokens: Tokens) -> Table:
        """`_table` of any tokens."""
        position: Any = tokens.position
        exponent = self.exponent(position.device)
        length = lengths(tokens)[..., None] if self.scaling.by_length else position
        rates = self.scaling.rates(self.theta, exponent, length, self.trained_len)
        angle = position[..., None].float() * rates  # (b, t) -> (b, t, r / 2)
        gain, pairs = self.scaling.gain(self.trained_len), -1 if self.interleaved else -2
        waves = [wave[:, None].unsqueeze(pairs) for wave in (angle.cos(), angle.sin())]
        cos, sin = waves if gain == 1 else (wave * gain for wave in waves)
        return cos, torch.cat([-sin, sin], pairs)

    def exponent(self, device: torch.device) -> Tensor:
        """2i / r of each pair i, (r / 2,) in fp32."""
        pairs = torch.arange(0, self.rotated_channels, 2, device=device, dtype=torch.float32)
        return pairs / self.rotated_channels

    def extra_repr(self) -> str:
        return f"{self.rotated_channels}, theta={self.theta:g}, {self.scaling}"


def odd_channel_fault(context: Context, fraction: float = 1.0) -> Iterator[Fault]:
    """The fault of an odd number of rotated channels per head, with the next even number."""
    option, head_dim = context.attn.head_dim_option, context.attn.head_dim
    rotated_channels = int(head_dim * fraction)
    if rotated_channels % 2 == 0 and (rotated_channels or not head_dim):
        return
    # Without the option, one head has all channels.
    width = f"attn.{option}" if option in context.options["attn"] else "model.dim"
    rule, fix = f"{width} must be even", ", or position=none"
    if fraction != 1:
        rule, fix = f"position.fraction * {rule}, and at least 2", " position.fraction=1"
    yield Fault(
        "",
        f"{context.names['position']} turns pairs of channels, so {rule}",
        got=rotated_channels,
        fix=f"Try {width}={head_dim + head_dim % 2}{fix}.",
    )


def lengths(tokens: Tokens) -> Tensor:
    """The length of each token's text, as positions count it, broadcasting to (b, t)."""
    position, document = tokens.position, tokens.document
    if document is None:
        return position.amax(-1, keepdim=True) + 1
    last = torch.ones_like(document, dtype=torch.bool)
    last[:, :-1] = document[:, 1:] != document[:, :-1]
    slots = torch.arange(document.shape[-1], device=document.device).expand_as(document)
    # The last slot of each token's document.
    end = slots.where(last, document.shape[-1] - 1).flip(-1).cummin(-1).values.flip(-1)
    return position.expand_as(document).gather(-1, end) + 1
