"""Feed-forward networks that send every token through the same weights."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from xformer_kit.packing import Packed
from xformer_kit.registry import Registry, at_least, within

Report = dict[str, Tensor]


class FFN(nn.Module):
    """Base of all feed-forward networks.

    residual: names of the matrices that write to the residual stream.
    """

    residual = ("down",)

    def forward(self, x: Tensor, real: Tensor | None = None) -> tuple[Tensor, Report]:
        """x (b, t, dim), real (b, t) or None -> x of the same shape, and what there is to report.

        A report's `loss` is added to the loss; what else it holds comes back, summed over the micro-batches and ranks of
        an optimizer step, to `after_step(report)` of the same module.
        """
        raise NotImplementedError


FFNS = Registry("ffn", given=("dim", "depth", "layers"), base=FFN)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),  # So et al., 2021, arXiv:2109.08668
    "gelu": F.gelu,  # Hendrycks and Gimpel, 2016, arXiv:1606.08415
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": F.tanh,
    "sigmoid": F.sigmoid,
    "mish": F.mish,
    "elu": F.elu,
    "identity": lambda x: x,
}
Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "mish", "elu", "identity"]


def width_of(dim: int, width: int | None, expand: float | None, own: float, multiple_of: int) -> int:
    """Channels between the matrices: `width`, or `expand` (else the part's own multiple) x dim, rounded up."""
    if width is not None:
        return width
    return -(-round((own if expand is None else expand) * dim) // multiple_of) * multiple_of


def check_width(options, context):
    yield from at_least(options, "channel", width=1, multiple_of=1)
    yield from within(options, dropout=(0, 1))
    if options.width is not None and options.expand is not None:
        yield f"width: cannot be set beside ffn.expand; got {options.width} and {options.expand}. Set one of them to null."
    if options.expand is not None and options.expand <= 0:
        yield f"expand: must be above 0; got {options.expand}."


@FFNS.register("mlp", also_called=("feed_forward", "dense"))
class MLP(FFN):
    """act(x U) D (Vaswani et al., 2017, arXiv:1706.03762, eq. 2)."""

    def __init__(
        self,
        dim: int,
        *,
        width: int | None = None,  # channels; null takes expand x dim
        expand: float | None = None,  # multiple of dim; null is 4
        multiple_of: int = 1,  # channels; the expanded width is rounded up to it
        activation: Activation = "gelu",  # element-wise function
        bias: bool = False,  # whether the matrices have biases
        dropout: float = 0.0,  # probability, on the activated channels
    ):
        super().__init__()
        width = width_of(dim, width, expand, 4, multiple_of)
        self.up = nn.Linear(dim, width, bias)
        self.down = nn.Linear(width, dim, bias)
        self.activation, self.dropout = ACTIVATIONS[activation], dropout

    check = classmethod(lambda cls, options, context: check_width(options, context))

    def forward(self, x, real=None):
        h = self.activation(self.up(x))
        if self.dropout:
            h = F.dropout(h, self.dropout, self.training)
        return self.down(h), {}


@FFNS.register("glu", also_called=("swiglu", "geglu", "reglu", "gated"))
class GLU(FFN):
    """(act(x G) * x U) D, three matrices in place of two (Shazeer, 2020, arXiv:2002.05202, eq. 6).

    silu makes it SwiGLU, gelu GEGLU, relu ReGLU, identity the bilinear layer. `expand` is 8/3 by default, so that the
    number of parameters equals an mlp's with 4.
    """

    def __init__(
        self,
        dim: int,
        *,
        width: int | None = None,  # channels; null takes expand x dim
        expand: float | None = None,  # multiple of dim; null is 8/3
        multiple_of: int = 8,  # channels; the expanded width is rounded up to it
        activation: Activation = "silu",  # element-wise function of the gate
        bias: bool = False,  # whether the matrices have biases
        dropout: float = 0.0,  # probability, on the gated channels
    ):
        super().__init__()
        width = width_of(dim, width, expand, 8 / 3, multiple_of)
        self.gate = nn.Linear(dim, width, bias)
        self.up = nn.Linear(dim, width, bias)
        self.down = nn.Linear(width, dim, bias)
        self.activation, self.dropout = ACTIVATIONS[activation], dropout

    check = classmethod(lambda cls, options, context: check_width(options, context))

    packed: Packed | None = None
    packs = ("gate", "up")

    def forward(self, x, real=None):
        gate, up = (self.gate(x), self.up(x)) if self.packed is None else self.packed(x)
        h = self.activation(gate) * up
        if self.dropout:
            h = F.dropout(h, self.dropout, self.training)
        return self.down(h), {}
