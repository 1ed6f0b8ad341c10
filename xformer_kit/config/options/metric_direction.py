"""Whether a low or a high value of a metric is better: by its name, or by the class of a metric
that a user registered.
"""

from xformer_kit.config.options.metrics import METRICS, higher_is_better
from xformer_kit.registry import Fault, Faults, Options, did_you_mean
from xformer_kit.registry.metric_names import (
    HIGHER,
    LOWER,
    OF_RUNS,
    PREFIX,
    TRAIN_LOSS,
    metric_word,
    our_name,
)


def registered_direction(metric: str) -> bool | None:
    """Returns whether higher is better for a registered metric such as val/mine; None if that is
    unknown, or known from its name.
    """
    return None if metric_word(metric) else higher_is_better(metric.rpartition("/")[2])


def mode_of(metric: str, mode: str | None) -> str:
    """Returns min or max: `mode`, or if that is None the direction of a metric that `metric_faults`
    accepts.
    """
    higher = metric_word(metric) in HIGHER or registered_direction(metric)
    return mode or ("max" if higher else "min")


def metric_faults(options: Options, name: str, node: str) -> Faults:
    """Yields the faults of the options `name`, a metric of the validation or the training loss, and
    `mode`, whether a low (min) or a high (max) value is better; None: by the metric's name or
    class. For a component's `check`; node: the config path of the component.
    """
    metric = getattr(options, name)
    last = metric.rpartition("/")[2]
    if metric != TRAIN_LOSS and (not metric.startswith(PREFIX) or not last):
        rule = f"must be a metric of the validation, {PREFIX}..., or {TRAIN_LOSS}"
        yield Fault(name, rule, repr(metric), f"Try {our_name(metric)}.")
    elif (
        options.mode is None
        and metric_word(metric) is None
        and registered_direction(metric) is None
    ):
        rule = f"it is not known whether a low or a high '{metric}' is better"
        words = [word for word in (*LOWER, *HIGHER, *METRICS) if word not in OF_RUNS]
        known = [f"{PREFIX}{word}" for word in words]
        hint = did_you_mean(metric, known)
        yield Fault(
            name, rule, fix=f"{hint}If it is meant, set {node}.mode=min or {node}.mode=max."
        )
