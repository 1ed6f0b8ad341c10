"""Positions that are added to the embeddings."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from xformer_kit.position.base import POSITIONS, Position
from xformer_kit.registry import Fault, at_least


@POSITIONS.register("learned", also_called=("absolute", "wpe"))
class LearnedPosition(Position):
    """x + P[position], one learned row per position (Gehring et al., 2017, arXiv:1705.03122;
    Radford et al., 2018).

    It supports at most `model.max_len` positions. Positions count the real tokens of a document, so
    padding on the left does not change them; OPT and BART begin with row 2, RoBERTa with the row
    after that of its padding token.
    """

    breaks = {"shift": "a row belongs to a place in the text"}
    looked_up = True
    bounded = True

    def __init__(
        self,
        dim: int,
        max_len: int,
        *,
        offset: int = 0,  # the row of the first position; rows before it are not used
    ):
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.zeros(max_len + offset, dim))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "row", offset=0)

    def embed(self, x, tokens):
        rows = tokens.position + self.offset if self.offset else tokens.position
        return x + nn.functional.embedding(rows, self.weight)  # (b, t) -> (b, t, dim)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


@POSITIONS.register("sinusoidal", also_called=("sine", "fourier"))
class Sinusoidal(Position):
    """x + P, with P[p, 2i] = sin(p / theta^(2i / dim)), P[p, 2i + 1] = cos(the same) (Vaswani et
    al., 2017, arXiv:1706.03762, section 3.5). It is computed for the positions of each batch, so
    the length is unlimited.

    With layout=concatenated all sines come before all cosines, as in the authors' code and in
    Marian.
    """

    breaks = {"shift": "waves are counted from the start of a text"}

    def __init__(
        self,
        dim: int,
        *,
        theta: float = 10_000.0,  # longest wavelength / 2 pi, tokens
        layout: Literal[
            "interleaved", "concatenated"
        ] = "interleaved",  # sine next to cosine, or all sines first
    ):
        super().__init__()
        self.dim = dim
        self.theta = theta
        self.layout = layout

    @classmethod
    def check(cls, options, context):
        if options.theta <= 0:
            yield Fault("theta", "must be above 0 tokens", got=options.theta)

    @classmethod
    def cannot(cls, options, context):
        if context.dim % 2:
            yield Fault(
                "",
                "sinusoidal pairs sines with cosines, so model.dim must be even",
                got=context.dim,
            )

    def embed(self, x: Tensor, tokens) -> Tensor:
        # Angles reach thousands, where fp32 is off by 1e-4: published tables are computed in
        # float64 and kept in fp32.
        wide = torch.float32 if x.device.type == "mps" else torch.float64  # mps has no float64
        rate = torch.arange(0, self.dim, 2, device=x.device, dtype=wide) * (
            -math.log(self.theta) / self.dim
        )
        angle = tokens.position[..., None].to(wide) * rate.exp()  # (b, t) -> (b, t, dim / 2)
        waves = angle.sin(), angle.cos()
        table = (
            torch.cat(waves, -1)
            if self.layout == "concatenated"
            else torch.stack(waves, -1).flatten(-2)
        )
        return x + table.float().to(x.dtype)
