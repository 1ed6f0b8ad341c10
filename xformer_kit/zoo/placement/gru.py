"""A gated recurrent unit instead of the residual sum."""

import torch
from torch import Tensor, nn

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement, SublayerNorms
from xformer_kit.tensors import hidden, vector


class GRUGate(nn.Module):
    """(1 - z) * x + z * tanh(W_g y + U_g (r * x)) with r = sigmoid(W_r y + U_r x) and z =
    sigmoid(W_z y + U_z x - bias), for the stream x and a sublayer's output y.

    start: initial value of the learned bias.
    """

    parameter_info = {
        **{f"w_{gate}": hidden("dim", "dim") for gate in "rzg"},
        **{f"u_{gate}": hidden("dim", "dim") for gate in "rzg"},
        "bias": vector("dim", bias=True),
    }

    def __init__(self, dim: int, start: float):
        super().__init__()
        self.w_r, self.w_z, self.w_g = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.u_r, self.u_z, self.u_g = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.start = start
        self.bias = nn.Parameter(torch.full((dim,), float(start)))

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        # By default biases start at 0.
        return torch.full(shape, float(self.start)) if name == "bias" else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the stream after a sublayer, from the stream x and its output y, (b, t, dim)."""
        reset = torch.sigmoid(self.w_r(y) + self.u_r(x))
        update = torch.sigmoid(self.w_z(y) + self.u_z(x) - self.bias)
        return (1 - update) * x + update * torch.tanh(self.w_g(y) + self.u_g(reset * x))

    def extra_repr(self) -> str:
        return f"start={self.start}"


@PLACEMENTS.register("gru", also_called=("gtrxl", "gru_gate"), similar=("gated", "gate_residual"))
class GRU(Placement):
    """g(x, relu(f(norm(x)))): a gated recurrent unit g replaces the sum (GTrXL: Parisotto et
    al., 2019, arXiv:1910.06764, section 3.2).

    g(x, y) = (1 - z) * x + z * tanh(W_g y + U_g (r * x)), where r = sigmoid(W_r y + U_r x) and z =
    sigmoid(W_z y + U_z x - b). b is learned, one for each channel. A value above 0 starts the gate
    near the identity: with 2, about 0.88 of x is kept. Sublayers in parallel are summed before the
    gate; if stochastic depth skips one, its y is 0.
    """

    variants = [{"bias": 0.5, "relu": False, "shared": False}]

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        parallel: int,
        *,
        bias: float = 2.0,  # b at the start, of every channel
        # whether a ReLU is applied to a sublayer's output before the gate, as in the paper
        relu: bool = True,
        # whether parallel sublayers share one norm; they have one gate
        shared: bool = True,
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.gate = GRUGate(dim, bias)
        self.relu = relu

    def forward(self, state, f, tokens):
        (x,) = state
        outputs = f.outputs(self.norm(x))
        return (self.gate(x, f.total([h.relu() for h in outputs] if self.relu else outputs)),)

    def extra_repr(self):
        return f"relu={self.relu}"
