"""Positions that are added to the embeddings."""

from typing import Literal

import torch
from torch import Tensor, nn

from xformer_kit.position.base import POSITIONS, Position, SinusoidPosition
from xformer_kit.registry import Fault, at_least
from xformer_kit.tensors import embedding
from xformer_kit.tensors.ids import table_rows

FIX = "Give smaller ones, or build the model with a larger model.max_len."


@POSITIONS.register("learned", also_called=("absolute", "wpe"))
class LearnedPosition(Position):
    """x + P[position], one learned row per position (Gehring et al., 2017, arXiv:1705.03122;
    Radford et al., 2018).

    It supports at most `model.max_len` positions. Positions count the real tokens of a document, so
    padding on the left does not change them; OPT and BART begin with row 2, RoBERTa with the row
    after that of its padding token.
    """

    breaks = {"shift": "a row belongs to a place in the text"}
    parameter_info = {"weight": embedding("positions", "dim")}
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
        table = self.weight[self.offset :] if self.offset else self.weight
        return x + table_rows("position", tokens.position, table, FIX)  # (b, t) -> (b, t, dim)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


@POSITIONS.register("sinusoidal", also_called=("sine",), similar=("fourier", "sin"))
class Sinusoidal(SinusoidPosition):
    """x + P, with P[p, 2i] = sin(p / theta^(2i / dim)), P[p, 2i + 1] = cos(the same) (Vaswani et
    al., 2017, arXiv:1706.03762, section 3.5). It is computed for the positions of each batch, so
    the length is unlimited.

    With layout=concatenated all sines come before all cosines, as in the authors' code and in
    Marian. In the authors' code and in fairseq, the rates are theta^(-i / (dim / 2 - 1))
    (up_to_theta), and fairseq's first positions are those of padding (offset).
    """

    breaks = {"shift": "waves are counted from the start of a text"}

    def __init__(
        self,
        dim: int,
        *,
        theta: float = 10_000.0,  # longest wavelength / 2 pi, tokens
        # sine next to cosine, or all sines first
        layout: Literal["interleaved", "concatenated"] = "interleaved",
        offset: int = 0,  # the number p of the first position
        # whether the slowest rate is 1 / theta; else it is theta^(2 / dim) times as fast
        up_to_theta: bool = False,
    ):
        super().__init__(dim, theta, up_to_theta)
        self.layout = layout
        self.offset = offset

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, "position", offset=0)

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        if options.up_to_theta and context.dim < 4:
            rule = "needs two rates, so four channels of the embeddings"
            yield Fault("up_to_theta", rule, got=context.dim, fix="Leave it false.")

    def embed(self, x: Tensor, tokens) -> Tensor:
        waves = self.waves(tokens.position + self.offset)  # (b, t) -> (b, t, dim / 2) each
        if self.layout == "concatenated":
            table = torch.cat(waves, -1)
        else:
            table = torch.stack(waves, -1).flatten(-2)
        return x + table.float().to(x.dtype)  # published tables are in fp32
