"""Where on the residual path do norms stand?

A placement carries the state of the residual stream, a tuple of tensors, through a group of sublayers that run in
parallel (one, in a sequential block). The tower calls `start` before its first block and `finish` behind its last.
"""

from collections.abc import Callable, Sequence
from itertools import cycle

from torch import Tensor, nn

from xformer_kit.registry import Registry

State = tuple[Tensor, ...]
Sublayer = Callable[[Tensor], Tensor]


class Placement(nn.Module):
    """Base of all placements. `norm()` builds a norm over the residual stream.

    states: how many tensors the residual stream carries; it is the same for all blocks of a tower.
    final_norm: whether the stream is normalised once more behind the last block (`model.final_norm` overrides it).
    """

    states = 1
    final_norm = True

    @staticmethod
    def start(x: Tensor) -> State:
        """The state in front of the first block. No tensor stands in it twice: compilation would give that block a graph of
        its own."""
        return (x,)

    def forward(self, state: State, sublayers: Sequence[Sublayer]) -> State:
        raise NotImplementedError

    @staticmethod
    def finish(state: State, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """The tower's output; `norm` is the final norm, or the identity."""
        return norm(state[0])

    def gains(self) -> dict[str, float]:
        """Factors of the initial standard deviation of a sublayer's matrices, by name; every other keeps 1."""
        return {}


PLACEMENTS = Registry("placement", given=("norm", "depth", "layers", "parallel"))


class Norms(nn.ModuleList):
    """One norm shared by the sublayers of a group, or one for each."""

    def __init__(self, norm: Callable[[], nn.Module], parallel: int, shared: bool):
        super().__init__(norm() for _ in range(1 if shared else parallel))

    def pairs(self, sublayers: Sequence[Sublayer]) -> list[tuple[nn.Module, Sublayer]]:
        return list(zip(self if len(self) > 1 else cycle(self), sublayers, strict=False))


def total(outputs: Sequence[Tensor]) -> Tensor:
    first, *rest = outputs
    for other in rest:
        first = first + other
    return first


@PLACEMENTS.register("pre", also_called=("pre_norm", "pre_ln", "prenorm"))
class Pre(Placement):
    """x + f(norm(x)): the residual stream stays untouched (Xiong et al., 2020, arXiv:2002.04745, figure 1b).

    Sublayers in parallel are summed, x + f(norm(x)) + g(norm(x)) (Wang and Komatsuzaki, 2021, GPT-J).
    """

    def __init__(
        self,
        norm: Callable[[], nn.Module],
        parallel: int,
        *,
        shared: bool = True,  # whether parallel sublayers read one norm (GPT-J) or one each (GPT-NeoX)
    ):
        super().__init__()
        self.norm = Norms(norm, parallel, shared)

    def forward(self, state, sublayers):
        (x,) = state
        norm, *each = self.norm
        if not each:
            h = norm(x)
            return (x + total([f(h) for f in sublayers]),)
        return (x + total([f(norm(x)) for norm, f in self.norm.pairs(sublayers)]),)


@PLACEMENTS.register("post", also_called=("post_norm", "post_ln", "postnorm"))
class Post(Placement):
    """norm(x + f(x)): the sum is normalised, and so is the output (Vaswani et al., 2017, arXiv:1706.03762, section 3.1)."""

    final_norm = False

    def __init__(self, norm: Callable[[], nn.Module]):
        super().__init__()
        self.norm = norm()

    def forward(self, state, sublayers):
        (x,) = state
        return (self.norm(x + total([f(x) for f in sublayers])),)


@PLACEMENTS.register("sandwich", also_called=("peri", "peri_ln", "sandwich_norm"))
class Sandwich(Placement):
    """x + norm_out(f(norm_in(x))): a norm before and behind (Ding et al., 2021, arXiv:2105.13290, section 2.3).

    Also called peri-LN (Kim et al., 2025, arXiv:2502.02732).
    """

    def __init__(
        self,
        norm: Callable[[], nn.Module],
        parallel: int,
        *,
        shared: bool = True,  # whether parallel sublayers read one norm or one each; each has its own behind it
    ):
        super().__init__()
        self.before = Norms(norm, parallel, shared)
        self.after = Norms(norm, parallel, shared=False)

    def forward(self, state, sublayers):
        (x,) = state
        outputs = [f(norm(x)) for norm, f in self.before.pairs(sublayers)]
        return (x + total([norm(h) for norm, h in zip(self.after, outputs, strict=True)]),)
