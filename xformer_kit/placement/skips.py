"""What layers get from far before them, beside the residual stream."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.placement.base import State

Way = Literal["factor", "matrix"]


class Join(nn.Module):
    """How an earlier stream y enters the stream x, each (b, t, dim): a x + b y with two learned
    numbers, 1 and 0 at the start; or x + [x, y] W with W (2 dim, dim), 0 at the start. A model
    starts as one without it.
    """

    def __init__(self, dim: int, way: Way):
        super().__init__()
        self.weight = nn.Parameter(
            torch.tensor([1.0, 0.0]) if way == "factor" else torch.zeros(dim, 2 * dim)
        )

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        return torch.zeros(shape) if len(shape) > 1 else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.weight.ndim > 1:
            return x + F.linear(torch.cat([x, y], -1), self.weight)
        return torch.addcmul(self.weight[0] * x, self.weight[1], y)

    def extra_repr(self) -> str:
        return "factor" if self.weight.ndim < 2 else "matrix"


class Skips(nn.Module):
    """The joins in front of a stack's layers, counted from 0: of what entered the first layer, in
    front of each other (`reinject`); and of what entered layer i, in front of layer n - 1 - i of n,
    in the second half (`unet`).

    Every stream of a placement gets what the same stream was. Layers that share a block have joins
    of their own.
    """

    # U-ViT: what layer i gave enters, as [x, y] W.   Here: what entered it, as in x-transformers,
    # so that in a stack of an even number of layers the two in the middle are joined by more than
    # what stands between them; x + [x, y] W starts as x.

    def __init__(self, dim: int, layers: int, reinject: Way | None, unet: Way | None):
        super().__init__()
        far = range(1, layers) if reinject else ()
        late = range(layers - layers // 2, layers) if unet else ()
        self.reinject = nn.ModuleDict(
            {str(depth): Join(dim, reinject) for depth in far if reinject}
        )
        self.unet = nn.ModuleDict({str(depth): Join(dim, unet) for depth in late if unet})
        self.kept = max(
            1 if reinject else 0, layers // 2 if unet else 0
        )  # layers in front of which the stream is kept
        self.layers = layers

    def forward(
        self,
        depth: int,
        state: State,
        kept: list[State],
        join: Callable[[State, State, nn.Module], State],
    ) -> State:
        """The state that enters layer `depth`; `kept` holds those in front of layers before it, to
        which it is added.
        """
        if len(kept) == depth < self.kept:
            kept.append(state)
        at = str(depth)
        if at in self.unet:
            state = join(state, kept[self.layers - 1 - depth], self.unet[at])
        if at in self.reinject:
            state = join(state, kept[0], self.reinject[at])
        return state
