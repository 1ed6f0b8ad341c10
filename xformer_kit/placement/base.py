"""The base class of placements, and the norms that several of them use."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from xformer_kit.registry import Context, Fault, Options, Registry, Unused
from xformer_kit.tensors import Info, SubmoduleInfo
from xformer_kit.tensors.report import Report
from xformer_kit.tensors.tokens import Tokens

State = tuple[Tensor, ...]  # tensors of the residual stream, each (b, t, dim)
MakeNorm = Callable[[], nn.Module]  # creates a norm over the residual stream


class Sublayer(Protocol):
    """A sublayer as a function of its input only, (b, t, dim) -> (b, t, dim)."""

    def __call__(self, x: Tensor) -> Tensor:
        """x (b, t, dim) -> its output (b, t, dim)."""

    def added(self, h: Tensor) -> Tensor:
        """What an output h adds to the stream: h with the model's dropout, the extras' hook
        `sublayer_output` and the residual multiplier.
        """


@dataclass(eq=False)
class SublayerGroup:
    """f in the formulas of placements: the sublayers of a group, which run in parallel.

    f(x) is the sum of what they add to the stream, and f(x, after=norms) the same with a norm of
    each output. A placement that changes outputs in another way calls `outputs`, or each of
    `sublayers`, and then `total`.

    report: of the placement, which adds to it: `loss` is added to the loss, other entries are
        summed as those of a feed-forward network.
    """

    sublayers: Sequence[Sublayer]  # of the group
    report: Report = field(default_factory=dict)

    def __call__(
        self, x: Tensor | Sequence[Tensor], after: Iterable[nn.Module] | None = None
    ) -> Tensor:
        """x (b, t, dim), or a list with one input for each sublayer -> (b, t, dim).

        after: a module for each sublayer, which is applied to its output.
        """
        if len(self.sublayers) == 1 and after is None:  # the usual case, without lists
            f = self.sublayers[0]
            return f.added(f(x if isinstance(x, Tensor) else x[0]))
        outputs = self.outputs(x)
        if after is not None:
            outputs = [module(h) for module, h in zip(after, outputs, strict=True)]
        return self.total(outputs)

    def outputs(self, x: Tensor | Sequence[Tensor]) -> list[Tensor]:
        """The output of each sublayer; x as in f(x)."""
        inputs = [x] * len(self.sublayers) if isinstance(x, Tensor) else x
        return [f(h) for f, h in zip(self.sublayers, inputs, strict=True)]

    def total(self, outputs: Sequence[Tensor]) -> Tensor:
        """The sum of what the outputs, one for each sublayer, add to the stream."""
        added = [f.added(h) for f, h in zip(self.sublayers, outputs, strict=True)]
        return reduce(torch.add, added)


class Placement(nn.Module):
    """Base of all placements, the residual connections and norms around a group of sublayers.

    final_norm: whether the stream is normalised once more after the last block (`model.final_norm`
    overrides it).
    """

    final_norm = True
    # If the state grows, blocks are not compiled, but sublayers and these modules of the placement,
    # each to one graph for all layers.
    compiled_parts: tuple[str, ...] = ()

    parameter_info: Mapping[str, Info] = {"": SubmoduleInfo({"normalised": "dim"})}

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
    def combine_streams(
        state: State, earlier: State, join: Callable[[Tensor, Tensor], Tensor]
    ) -> State:
        """The state before a layer into which an `earlier` state enters by a skip connection:
        join(x, y) for each stream x and the same stream y of the earlier state.
        """
        return tuple(join(x, y) for x, y in zip(state, earlier, strict=True))

    def forward(self, state: State, f: SublayerGroup, tokens: Tokens) -> State:
        """Returns the state after a group of sublayers f, such as x + f(norm(x)). `tokens` (b, t)
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


class PlacementArguments:
    """What the model passes to the constructor of a placement, of which each group has one."""

    dim: int  # channels of the residual stream
    norm: MakeNorm  # creates a norm over the residual stream, without arguments
    depth: int  # index of the first layer that uses the block
    layers: int  # number of layers of the stack
    # number of groups of sublayers before this one in its stack, in the first layer of its block
    order: int
    latest: int  # the same in the last layer that uses the block
    parallel: int  # number of sublayers of the group
    kinds: Sequence[str]  # "attn" or "ffn" for each of them
    stack: str  # name of the stack, "encoder" or "decoder"
    stacks: Mapping[str, int]  # name of each stack of the model -> its number of layers


PLACEMENTS = Registry("placement", caller_arguments=PlacementArguments)


class SublayerNorms(nn.ModuleList):
    """factor * norm(x), the input of the sublayers of a group, with one norm that they share or one
    for each.
    """

    factor: Tensor | None  # None: 1

    def __init__(self, norm: MakeNorm, parallel: int, shared: bool, factor: float | None = None):
        super().__init__(norm() for _ in range(1 if shared else parallel))
        # A tensor: compilation would create a separate graph for each number.
        number = None if factor is None else torch.tensor(factor)
        self.register_buffer("factor", number, persistent=False)

    def forward(self, x: Tensor) -> list[Tensor] | Tensor:
        """x (b, t, dim) -> (b, t, dim), or a list with one for each sublayer."""
        normed = [norm(x) for norm in self._modules.values()]  # type: ignore[misc]
        if self.factor is not None:
            normed = [h * self.factor for h in normed]
        return normed if len(normed) > 1 else normed[0]
