"""Registry of optional callbacks: early stopping, built-in observers of a run, and a user's own
callbacks from a file of `components`.

A user's callback is a `lightning.pytorch.Callback` whose keyword-only parameters are its options; a
parameter `run_dir` gets the run's directory. The config names the callbacks of a run:
`callbacks: {norms: {every: 50}, mine: {every: 10}}`. Callbacks that every run needs are not
registered.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xformer_kit.metrics import TRAIN_LOSS, VAL_LOSS, metric_option_faults
from xformer_kit.registry import Fault, Faults, Node, Registry, at_least, not_empty


class CallbackArguments:
    """What a run passes to the constructor of a callback."""

    run_dir: Path  # the run's directory


CALLBACKS = Registry(
    "callback", caller_arguments=CallbackArguments, group="callbacks", several=True
)
CHECKPOINTS = Fault(
    "",
    "checkpoints are settings of the run",
    fix="Set checkpoints.metric and checkpoints.keep_best.",
)
LOGGED = Fault("", "every run logs its learning rate", fix="Leave it out.")
# Callbacks of Lightning for what a run has anyway.
CALLBACKS.refused_names |= {
    "ModelCheckpoint": CHECKPOINTS,
    "model_checkpoint": CHECKPOINTS,
    "LearningRateMonitor": LOGGED,
    "learning_rate_monitor": LOGGED,
    "lr_monitor": LOGGED,
}


class Observer:
    """Base of the options of built-in callbacks that observe a run and do not change it.
    tasks/callbacks/observers.py creates the callbacks.
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
        yield from not_empty(options, of="Try [attention], [bias] or [mask].")
        for name in ("layers", "heads"):
            if any(number < 0 for number in getattr(options, name) or ()):
                yield Fault(
                    name,
                    "must be counted from 0 on",
                    got=list(getattr(options, name)),
                    fix="Try [0].",
                )


@CALLBACKS.register("early_stopping")
@dataclass(frozen=True)
class EarlyStopping:
    """Ends the run after `patience` validations in which a metric is not better than its best value
    so far by more than `min_delta` (Prechelt, 1998, Early stopping - but when?).

    tasks/callbacks/user_callbacks.py creates Lightning's EarlyStopping with these options.
    """

    patience: int = 5  # validations
    metric: str = VAL_LOSS  # a metric of the validation, or train/loss
    mode: Literal["min", "max"] | None = None  # which value is best; null is by the metric's name
    min_delta: float = 0.0  # in the unit of the metric

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "validation", patience=1)
        yield from at_least(options, min_delta=0)
        yield from metric_option_faults(options, "metric", "callbacks.early_stopping")


def only_observes(name: str) -> bool:
    """Whether a callback only observes, so that the result of a run is the same without it."""
    component = CALLBACKS.get(name)
    return isinstance(component, type) and issubclass(component, Observer)


def may_log(config: Node) -> bool:
    """Whether callbacks of a run may log metrics of their own."""
    names = {*(config.get("callbacks") or {})} - {"early_stopping"}
    return not all(map(only_observes, names))


def monitored_metrics(config: Node) -> dict[str, str]:
    """Returns {config path: metric} of the options that name a metric of the run."""
    found, stopping = {}, config.get("callbacks", {}).get("early_stopping")
    if config["trainer"].get("enable_checkpointing", True):
        found["checkpoints.metric"] = config["checkpoints"].get("metric", VAL_LOSS)
    if stopping is not None:
        default = CALLBACKS.defaults("early_stopping")["metric"]
        found["callbacks.early_stopping.metric"] = stopping.get("metric", default)
    return found


def monitored_faults(config: Node) -> Faults:
    """Yields the faults of metrics that have no value when they are read."""
    trainer = config["trainer"]
    val_every, log_every = trainer.get("val_every"), trainer.get("log_every_n_steps", 1)
    if val_every is None and "early_stopping" in config.get("callbacks", {}):
        rule = "needs validations before the last step; trainer.val_every is null"
        yield Fault("callbacks.early_stopping", rule, fix="Set trainer.val_every=200.")
    for path, metric in monitored_metrics(config).items():
        if metric == TRAIN_LOSS and val_every is not None and val_every % log_every:
            rule = f"{metric} needs a trainer.val_every that trainer.log_every_n_steps divides"
            yield Fault(path, rule, f"{val_every} and {log_every}", f"Try {VAL_LOSS}.")
