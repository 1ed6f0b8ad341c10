"""The metrics of runs: a table of those of the package, and the registry of those that a config
names, a user's own among them.
"""

from xformer_kit.metrics.direction import direction, metric_option_faults, mode_of
from xformer_kit.metrics.registered import METRICS, BuiltInMetric
from xformer_kit.metrics.table import (
    KNOWN,
    TEST,
    TRAIN_LOSS,
    VAL,
    VAL_LOSS,
    KnownMetric,
    known_metric,
    of_split,
)

__all__ = [
    "KNOWN",
    "METRICS",
    "TEST",
    "TRAIN_LOSS",
    "VAL",
    "VAL_LOSS",
    "BuiltInMetric",
    "KnownMetric",
    "direction",
    "known_metric",
    "metric_option_faults",
    "mode_of",
    "of_split",
]
