"""What a component of any kind may declare."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from xformer_kit.registry import Context, Fault, Options
from xformer_kit.tensors.parameters import Info
from xformer_kit.tensors.report import Report


class Component(Protocol):
    """Attributes and methods of components, and of modules in them, that are used whatever their
    kind is. None is required.
    """

    # option sets over the defaults, [{}, {"window": 5}], with which the laws are checked
    variants: Sequence[Mapping[str, Any]]
    # laws that its mathematics breaks -> the reason; a composition that needs one of them is
    # refused. Also a class method `breaks(options)` that returns the mapping
    breaks: Mapping[str, str]
    parameter_info: Mapping[str, Info]  # what its parameters are, by name of parameter or submodule
    # of a module with a weight that has more axes than a linear map: those before, ("experts",)
    first_axes: tuple[str, ...]
    # its persistent buffers that only training reads: published files do not have them
    training_buffers: tuple[str, ...]
    adds_loss: bool  # whether its report has a `loss`

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Yields the faults of its own options, before the composition is known; constructors
        assume valid options. The path of a fault is that inside its node, "" for the component.
        """
        yield from ()

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Yields why it cannot be composed with the components in `context`, and as `Unused` the
        options without effect in one sublayer. An option that is a component is its complete node,
        with the class as `component`. That of an objective is called for each attention.
        """
        yield from ()

    @classmethod
    def builds_block_norm(cls, options: Mapping[str, Any]) -> bool:
        """Returns whether, with these options, it builds norms of its block's kind."""
        return False

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        """Returns the initial value of its own parameter `name`; None: as `init` draws it."""
        return None

    def before_steps(self) -> None:
        """Called before the first step of a run whose every step ends with `after_step`, and when
        one is resumed.
        """

    def after_step(self, report: Report) -> None:
        """Called after an optimizer step with the module's report, summed over the micro-batches
        and ranks of the step; the only place that writes its buffers.
        """

    def figures(self, report: Report) -> Mapping[str, float]:
        """Returns the numbers of its report that are logged; without it, its tensors of one
        element.
        """
        return {}

    def unused(self) -> int:
        """Returns the number of its parameters that a token does not use, for counts of active
        parameters.
        """
        return 0
