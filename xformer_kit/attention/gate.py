"""By what is the output of the heads multiplied?

A gate is a component of an attention: attn.gate=element, or attn.gate.name=element
attn.gate.rank=16.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.registry import Fault, Registry

Of = Literal["input", "output", "both"]
Activation = Literal["sigmoid", "silu"]
Middle = Literal["none", "silu"]


class Gate(nn.Module):
    """Base of all gates: override `before` or `behind`, the output projection. Neither does
    anything here.
    """

    def before(self, x: Tensor, out: Tensor) -> Tensor:
        """x (b, t, dim) is what the attention reads; out (b, t, h, e), what its heads gathered ->
        the same shape.
        """
        return out

    def behind(self, x: Tensor, out: Tensor, y: Tensor) -> Tensor:
        """out (b, t, h * e) is what was projected, y (b, t, dim) its projection -> the same shape
        as y.
        """
        return y


GATES = Registry("gate", given=("dim", "heads", "v_head_dim"), base=Gate, group="attn.gate")


@GATES.register("none")
class NoGate(Gate):
    """The output as it is."""

    def __init__(self, dim: int, heads: int, v_head_dim: int):
        super().__init__()


@GATES.register("constant", also_called=("head_scale",))
class Constant(Gate):
    """The output of each head times a learned number, from 1 (Shleifer et al., 2021,
    arXiv:2110.09456).
    """

    def __init__(self, heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(heads))

    def before(self, x, out):
        return out * self.weight[:, None]


class Narrow(nn.Module):
    """x A B, or silu(x A) B, with A of (into, rank) and B of (rank, out)."""

    def __init__(self, into: int, out: int, rank: int, silu: bool):
        super().__init__()
        self.reduce = nn.Linear(into, rank, False)
        self.expand = nn.Linear(rank, out, False)
        self.silu = silu

    def forward(self, x: Tensor) -> Tensor:
        x = self.reduce(x)
        return self.expand(F.silu(x) if self.silu else x)


class Made(Gate):
    """Base of gates that are made of a token: act(x W + o U + c), of what the attention reads, of
    what its heads gathered, or of both.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        out: int,
        of: Of,
        activation: Activation,
        bias: float | None,
        **low: Any,
    ):
        super().__init__()
        self.input = linear(sizes["input"], out, **low) if of != "output" else None
        self.output = linear(sizes["output"], out, **low) if of != "input" else None
        self.activation = torch.sigmoid if activation == "sigmoid" else F.silu
        self.start = bias
        self.bias = None if bias is None else nn.Parameter(torch.full((out,), float(bias)))

    @classmethod
    def check(cls, options, context):
        if options.rank is not None and options.rank < 1:
            yield Fault(
                "rank",
                "must be at least 1 channel",
                got=options.rank,
                fix="null is one matrix in place of two.",
            )
        if options.rank is None and options.middle == "silu":
            yield Fault(
                "middle",
                "stands between the two matrices of a gate of low rank, and without a rank there"
                " is one",
                got="'silu'",
                fix="Try attn.gate.rank=16, or none.",
            )

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.full(shape, self.start)

    def factor(self, x: Tensor, out: Tensor) -> Tensor:
        """Of x (b, t, dim) and out (b, t, h * e)."""
        made = [m(given) for m, given in ((self.input, x), (self.output, out)) if m is not None]
        total = made[0] if len(made) == 1 else made[0] + made[1]
        return self.activation(total if self.bias is None else total + self.bias)


def linear(into: int, out: int, rank: int | None = None, middle: Middle = "none") -> nn.Module:
    return (
        nn.Linear(into, out, False) if rank is None else Narrow(into, out, rank, middle == "silu")
    )


@GATES.register("head", also_called=("headwise",))
class HeadGate(Made):
    """The output of each head times sigmoid(x W), a number for the token (Qiu et al., 2025,
    arXiv:2505.06708, section 2.2; with a bias: Bondarenko et al., 2023, arXiv:2306.12929, section
    4.2).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        v_head_dim: int,
        *,
        # made of what the attention reads, of what its heads gathered, or of both
        of: Of = "input",
        activation: Activation = "sigmoid",  # what is done with the sum
        bias: float | None = None,  # start of a learned number that is added in front; null is none
    ):
        super().__init__({"input": dim, "output": heads * v_head_dim}, heads, of, activation, bias)

    def before(self, x, out):
        return out * self.factor(x, out.flatten(2))[..., None]  # (b, t, h, 1)


@GATES.register("element", also_called=("elementwise", "gate_values"))
class Element(Made):
    """The output of each head times sigmoid(x W), a number for each channel (Qiu et al., 2025,
    arXiv:2505.06708, section 2.2).

    rank: W is A B with as many columns in A. With silu in place of sigmoid, silu(x W) * o is a GLU
    (Shazeer, 2020, arXiv:2002.05202, eq. 6).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        v_head_dim: int,
        *,
        # made of what the attention reads, of what its heads gathered, or of both
        of: Of = "input",
        rank: int | None = None,  # channels between two matrices in place of one; null is one
        middle: Middle = "none",  # what is done between those two
        activation: Activation = "sigmoid",  # what is done with the sum
        bias: float | None = None,  # start of a learned number that is added in front; null is none
    ):
        out = heads * v_head_dim
        super().__init__(
            {"input": dim, "output": out}, out, of, activation, bias, rank=rank, middle=middle
        )

    def before(self, x, out):
        return out * self.factor(x, out.flatten(2)).view_as(out)


@GATES.register("projected", also_called=("attention_on_attention", "aoa", "on_attn"))
class Projected(Made):
    """y * sigmoid(o U), a number for each channel of the projection y of the heads' output o
    (attention on attention: Huang et al., 2019, arXiv:1908.06954). With of=output it is a GLU in
    place of the output projection.
    """

    # Paper: the gate, and what is gated, are made of the query too.   Here: the gate is with
    # of=both, from the input that the query is made of; the input itself stays in the residual
    # stream beside what is gated.

    def __init__(
        self,
        dim: int,
        heads: int,
        v_head_dim: int,
        *,
        # made of what the attention reads, of what its heads gathered, or of both
        of: Of = "output",
        rank: int | None = None,  # channels between two matrices in place of one; null is one
        middle: Middle = "none",  # what is done between those two
        activation: Activation = "sigmoid",  # what is done with the sum
        bias: float | None = None,  # start of a learned number that is added in front; null is none
    ):
        sizes = {"input": dim, "output": heads * v_head_dim}
        super().__init__(sizes, dim, of, activation, bias, rank=rank, middle=middle)

    def behind(self, x, out, y):
        return y * self.factor(x, out)
