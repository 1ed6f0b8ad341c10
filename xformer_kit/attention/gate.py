"""Gates: factors on the output of the heads of an attention.

A gate is an option of an attention: attn.gate=element, or attn.gate.name=element attn.gate.rank=16.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.registry import Fault, Registry, at_least
from xformer_kit.tensors import Info, SubmoduleInfo, hidden, vector

GateInput = Literal["input", "output", "both"]
Activation = Literal["sigmoid", "silu"]
Middle = Literal["none", "silu"]


class Gate(nn.Module):
    """Base of all gates. Override `before`, which changes the input of the output projection, or
    `after`, which changes its output.
    """

    parameter_info: Mapping[str, Info] = {}

    def before(self, x: Tensor, out: Tensor) -> Tensor:
        """x (b, t, dim), the attention's input, and out (b, t, h, e), the output of its heads ->
        the new output of the heads.
        """
        return out

    def after(self, x: Tensor, out: Tensor, y: Tensor) -> Tensor:
        """out (b, t, h * e), the output of the heads, and y (b, t, dim), its projection -> the new
        projection.
        """
        return y


class GateArguments:
    """What an attention passes to the constructor of its gate."""

    dim: int  # channels of the residual stream
    heads: int  # query heads
    v_head_dim: int  # channels of a head's output


GATES = Registry("gate", caller_arguments=GateArguments, base=Gate, group="attn.gate")


@GATES.register("none")
class NoGate(Gate):
    """The output, unchanged."""

    def __init__(self, dim: int, heads: int, v_head_dim: int):
        super().__init__()


@GATES.register("constant", also_called=("head_scale",))
class ConstantGate(Gate):
    """The output of each head times a learned number, initially 1 (Shleifer et al., 2021,
    arXiv:2110.09456).
    """

    parameter_info = {"weight": vector("heads")}

    def __init__(self, heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(heads))

    def before(self, x, out):
        return out * self.weight[:, None]


class LowRankLinear(nn.Module):
    """x A B, or silu(x A) B, with A of (into, rank) and B of (rank, out)."""

    def __init__(self, into: int, out: int, rank: int, silu: bool):
        super().__init__()
        self.reduce = nn.Linear(into, rank, False)
        self.expand = nn.Linear(rank, out, False)
        self.silu = silu

    def forward(self, x: Tensor) -> Tensor:
        """x (..., into) -> (..., out)."""
        x = self.reduce(x)
        return self.expand(F.silu(x) if self.silu else x)


class TokenGate(Gate):
    """Base of gates that are computed for each token: act(x W + o U + c), from the attention's
    input x, from the output o of its heads, or from both.

    With `rank`, W = A B and U likewise, where A has this many columns. bias: initial c.
    """

    parameter_info = {
        "input": hidden("gated_channels", "dim"),
        "output": hidden("gated_channels", "heads*v_head_dim", shared_by_heads=False),
        "input.reduce": hidden("rank", "dim", shared_by_heads=True),
        "output.reduce": hidden("rank", "heads*v_head_dim", shared_by_heads=False),
        "input.expand": hidden("gated_channels", "rank"),
        "output.expand": hidden("gated_channels", "rank"),
        "bias": vector("gated_channels", bias=True),
    }

    def __init__(
        self,
        dim: int,
        heads: int,
        v_head_dim: int,
        *,
        # computed from the attention's input, from the output of its heads, or from both
        of: GateInput = "input",
        rank: int | None = None,  # channels between two matrices instead of one; null is one
        middle: Middle = "none",  # activation between those two
        activation: Activation = "sigmoid",  # activation of the sum
        bias: float | None = None,  # initial bias of the gate; null is no bias
    ):
        super().__init__()
        into, out = heads * v_head_dim, self.size(dim, heads, v_head_dim)
        self.input = None if of == "output" else make_linear(dim, out, rank, middle)
        self.output = None if of == "input" else make_linear(into, out, rank, middle)
        self.activation = torch.sigmoid if activation == "sigmoid" else F.silu
        self.start = bias
        self.bias = None if bias is None else nn.Parameter(torch.full((out,), float(bias)))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "channel", rank=1)
        if options.rank is None and options.middle == "silu":
            yield Fault(
                "middle",
                "is applied between the two matrices of a gate of low rank, and without a rank"
                " there is only one",
                got="'silu'",
                fix="Try attn.gate.rank=16, or none.",
            )

    @staticmethod
    def size(dim: int, heads: int, v_head_dim: int) -> int:
        """The channels of the gate."""
        raise NotImplementedError

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.full(shape, self.start)

    def factor(self, x: Tensor, out: Tensor) -> Tensor:
        """The gate, (b, t, channels), from x (b, t, dim) and out (b, t, h * e)."""
        terms = [m(value) for m, value in ((self.input, x), (self.output, out)) if m is not None]
        total = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        return self.activation(total if self.bias is None else total + self.bias)


def make_linear(into: int, out: int, rank: int | None, middle: Middle) -> nn.Module:
    """A linear map, as one matrix, or with a rank as two."""
    if rank is None:
        return nn.Linear(into, out, False)
    return LowRankLinear(into, out, rank, middle == "silu")


@GATES.register("head", also_called=("headwise",))
class HeadGate(TokenGate):
    """The output of each head times sigmoid(x W), one number per token and head (Qiu et al., 2025,
    arXiv:2505.06708, section 2.2; with a bias: Bondarenko et al., 2023, arXiv:2306.12929, section
    4.2).
    """

    parameter_info = {"": SubmoduleInfo({"gated_channels": "heads"})}

    @staticmethod
    def size(dim, heads, v_head_dim):
        return heads

    def before(self, x, out):
        return out * self.factor(x, out.flatten(2))[..., None]  # (b, t, h, 1)


@GATES.register("element", also_called=("elementwise",))
class ElementGate(TokenGate):
    """The output of each head times sigmoid(x W), one number per channel (Qiu et al., 2025,
    arXiv:2505.06708, section 2.2).

    With activation=silu, silu(x W) * o is a GLU (Shazeer, 2020, arXiv:2002.05202, eq. 6).
    """

    parameter_info = {"": SubmoduleInfo({"gated_channels": "heads*v_head_dim"})}

    @staticmethod
    def size(dim, heads, v_head_dim):
        return heads * v_head_dim

    def before(self, x, out):
        return out * self.factor(x, out.flatten(2)).view_as(out)


@GATES.register("projected", also_called=("attention_on_attention", "aoa", "on_attn"))
class ProjectedGate(TokenGate):
    """y * sigmoid(o U), one number per channel of the projection y of the heads' output o
    (attention on attention: Huang et al., 2019, arXiv:1908.06954). With of=output it replaces the
    output projection by a GLU.
    """

    # Paper: the gate and the gated vector are computed from the query too.   Here: with of=both the
    # gate is computed from the attention's input, of which the query is a projection; the gated
    # vector is computed only from o.

    parameter_info = {"": SubmoduleInfo({"gated_channels": "dim"}, shared_by_heads=True)}

    def __init__(
        self,
        dim: int,
        heads: int,
        v_head_dim: int,
        *,
        # computed from the attention's input, from the output of its heads, or from both
        of: GateInput = "output",
        rank: int | None = None,  # channels between two matrices instead of one; null is one
        middle: Middle = "none",  # activation between those two
        activation: Activation = "sigmoid",  # activation of the sum
        bias: float | None = None,  # initial bias of the gate; null is no bias
    ):
        super().__init__(
            dim,
            heads,
            v_head_dim,
            of=of,
            rank=rank,
            middle=middle,
            activation=activation,
            bias=bias,
        )

    @staticmethod
    def size(dim, heads, v_head_dim):
        return dim

    def after(self, x, out, y):
        return y * self.factor(x, out)
