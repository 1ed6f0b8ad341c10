"""Registry of optional callbacks: built-in observers of a run, and a user's own callbacks from a
file of `components`.

A user's callback is a `lightning.pytorch.Callback` whose keyword-only parameters are its options; a
parameter `run_dir` gets the run's directory. The config names the callbacks of a run:
`callbacks: {norms: {every: 50}, mine: {every: 10}}`. Callbacks that every run needs are not
registered.
"""

from dataclasses import dataclass
from typing import Literal

from xformer_kit.registry import (
    Fault,
    Registry,
    at_least,
)

CALLBACKS = Registry("callback", caller_arguments=("run_dir",), group="callbacks", several=True)


class Observer:
    """Base of the options of built-in callbacks that observe a run and do not change it.
    tasks/callbacks/built_in.py creates the callbacks.
    """


@CALLBACKS.register("norms")
@dataclass(frozen=True)
class Norms(Observer):
    """Sizes of activations and gradients, layer by layer, in norms.csv and the logger.

    Every `every` steps: the root mean square of the residual stream after each layer, over the real
    tokens of this step on the first process, and the norm of the gradients of each layer's
    parameters, before clipping. `xformer plot norms RUN` draws them.
    """

    every: int = 50  # optimizer steps

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "step", every=1)


@CALLBACKS.register("pictures")
@dataclass(frozen=True)
class Pictures(Observer):
    """Pictures of the model as it learns, in the run's pictures/ and the logger: what it attends to
    in the first validation example, biases of positions, and, at the start, masks. Needs the extra
    `study`.
    """

    every: int = 500  # optimizer steps; also at the start and at the end
    of: tuple[Literal["attention", "bias", "mask"], ...] = ("attention",)  # what is drawn
    layers: tuple[int, ...] | None = None  # whose attention is drawn, from 0 on; null is all
    heads: tuple[int, ...] | None = None  # which of its heads, from 0 on; null is all
    length: int = 48  # tokens that are drawn

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "step", every=1)
        yield from at_least(options, "token", length=1)
        if not options.of:
            yield Fault(
                "of",
                "must name what is drawn",
                got="nothing",
                fix="Try [attention], [bias] or [mask].",
            )
        for name in ("layers", "heads"):
            if any(number < 0 for number in getattr(options, name) or ()):
                yield Fault(
                    name,
                    "must be counted from 0 on",
                    got=list(getattr(options, name)),
                    fix="Try [0].",
                )


def only_observes(name: str) -> bool:
    """Whether a callback only observes, so that the result of a run is the same without it."""
    component = CALLBACKS.get(name)
    return isinstance(component, type) and issubclass(component, Observer)
