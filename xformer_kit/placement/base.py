"""The base class of placements, and the norms that several of them use."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.registry import Context, Fault, Options, Registry, Unused
from xformer_kit.tensors import Statement, Within
from xformer_kit.tensors.tokens import Tokens

State = tuple[Tensor, ...]  # tensors of the residual stream, each (b, t, dim)
Sublayer = Callable[[Tensor], Tensor]  # a sublayer as a function of its input only
Total = Callable[[Sequence[Tensor]], Tensor]  # outputs of sublayers -> their sum
MakeNorm = Callable[[], nn.Module]  # creates a norm over the residual stream


class Placement(nn.Module):
    """Base of all placements, the residual connections and norms around a group of sublayers.

    final_norm: whether the stream is normalised once more after the last block (`model.final_norm`
    overrides it).
    """

    final_norm = True

    parameter_info: Mapping[str, Statement] = {"": Within({"normalised": "dim"})}

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Faults of the placement with its block, and options without effect."""
        if options.shared is False and len(context.parallel) == 1:
            yield Unused(
                "shared",
                "gives each of several parallel sublayers its own norm, and none run in parallel",
                got="false",
                fix="Leave it true, or put two into an inner list of the layout: [[attn, ffn]].",
            )

    @classmethod
    def streams(cls, options: Mapping[str, Any]) -> int | str:
        """The number of tensors of the state; if each group of sublayers adds one, a word for what
        these tensors are, such as "outputs". The same for all blocks of a stack.
        """
        return 1

    @staticmethod
    def start(x: Tensor, streams: int | str) -> State:
        """The state before the first block: x in each of its streams, or only x if it grows. It
        holds no tensor twice: compilation would create a separate graph for that block.
        """
        return x, *(x.clone() for _ in range(streams - 1 if isinstance(streams, int) else 0))

    @staticmethod
    def joined(state: State, earlier: State, join: Callable[[Tensor, Tensor], Tensor]) -> State:
        """The state before a layer into which an `earlier` state enters by a skip connection:
        join(x, y) for each stream x and the same stream y of the earlier state.
        """
        return tuple(join(x, y) for x, y in zip(state, earlier, strict=True))

    def forward(
        self, state: State, sublayers: Sequence[Sublayer], total: Total, tokens: Tokens
    ) -> State:
        """Returns the state after the group. `total(outputs)` is the sum of the sublayers' outputs,
        each with the model's dropout, stochastic depth and residual multiplier. `tokens` (b, t)
        holds the stream's padding and documents.
        """
        raise NotImplementedError

    @staticmethod
    def finish(state: State, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """The stack's output; `norm` is the final norm, or the identity."""
        return norm(state[0])

    @property
    def value_gain(self) -> float:
        """Factor of the initial standard deviation of the sublayers' matrices with `values`."""
        return 1.0


# dim: channels of the residual stream; norm: a function without arguments that creates a norm.
# depth: index of the first layer that uses the block; layers: number of layers of the stack.
# order: number of groups of sublayers before this one in its stack, at the first call of its block;
# latest: that number at the last call.
# parallel: number of sublayers in the group; kinds: "attn" or "ffn" for each of them.
# stack: name of the stack; stacks: name -> number of layers, of each stack of the model.
CALLER_ARGUMENTS = ("dim", "norm", "depth", "layers", "order", "latest", "parallel", "kinds")
PLACEMENTS = Registry(
    "placement",
    caller_arguments=(*CALLER_ARGUMENTS, "stack", "stacks"),
)


class SublayerNorms(nn.ModuleList):
    """One norm that the sublayers of a group share, or one for each. Their outputs are multiplied
    by `factor`.
    """

    factor: Tensor | None

    def __init__(self, norm: MakeNorm, parallel: int, shared: bool, factor: float | None = None):
        super().__init__(norm() for _ in range(1 if shared else parallel))
        if factor is None:
            self.factor = None
        else:  # a tensor: compilation would create a separate graph for each number
            self.register_buffer("factor", torch.tensor(factor), persistent=False)

    def outputs(self, x: Tensor, sublayers: Sequence[Sublayer]) -> list[Tensor]:
        """f(norm(x)) of each sublayer f."""
        if len(self) == 1:
            h = self._scaled(self[0](x))
            return [f(h) for f in sublayers]
        return [f(self._scaled(norm(x))) for norm, f in zip(self, sublayers, strict=True)]

    def _scaled(self, h: Tensor) -> Tensor:
        return h if self.factor is None else h * self.factor
