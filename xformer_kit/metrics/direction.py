"""Whether a low or a high value of a metric is better: by the table, or by the class of a metric
that a user registered.
"""

from xformer_kit.metrics.registered import METRICS
from xformer_kit.metrics.table import KNOWN, TRAIN_LOSS, VAL, known_metric, our_metric
from xformer_kit.registry import Fault, Faults, Options, did_you_mean


def registered_direction(metric: str) -> bool | None:
    """Returns whether higher is better for a registered metric such as val/mine; None if that is
    unknown, or known from its name.
    """
    component = METRICS.get(metric.rpartition("/")[2])
    return None if known_metric(metric) else getattr(component, "higher_is_better", None)


def direction(metric: str) -> bool | None:
    """Returns whether higher is better; None if that is unknown."""
    known = known_metric(metric)
    return known.higher_is_better if known else registered_direction(metric)


def mode_of(metric: str, mode: str | None) -> str:
    """Returns min or max: `mode`, or if that is None the direction of a metric that
    `metric_option_faults` accepts.
    """
    return mode or ("max" if direction(metric) else "min")


def similar_metric(metric: str) -> str:
    """Returns the hint "Did you mean ...? " with a metric of the validation, or ""."""
    costs = {word for word, known in KNOWN.items() if known.cost}
    return did_you_mean(
        metric, [f"{VAL}{word}" for word in (*KNOWN, *METRICS) if word not in costs]
    )


def metric_option_faults(options: Options, name: str, node: str) -> Faults:
    """Yields the faults of the options `name`, a metric of the validation or the training loss, and
    `mode`, whether a low (min) or a high (max) value is better; None: by the metric's name or
    class. For a component's `check`; node: the config path of the component.
    """
    metric = getattr(options, name)
    if metric != TRAIN_LOSS and (not metric.startswith(VAL) or metric.endswith("/")):
        yield Fault(
            name,
            f"must be a metric of the validation, {VAL}..., or {TRAIN_LOSS}",
            repr(metric),
            f"Try {our_metric(metric)}.",
        )
    elif options.mode is None and direction(metric) is None:
        fix = f"If it is meant, set {node}.mode=min or {node}.mode=max."
        yield Fault(
            name,
            f"it is not known whether a low or a high '{metric}' is better",
            fix=similar_metric(metric) + fix,
        )
