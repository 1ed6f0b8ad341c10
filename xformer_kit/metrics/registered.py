"""Registry of metrics of the validation and the test set: built-in ones, and a user's own from a
file of `components`.

A user's metric is a `torchmetrics.Metric` whose keyword-only parameters are its options, and whose
`compute` returns one number; a parameter `classes` gets the number of classes or tokens. Its
`higher_is_better` is the direction, unless the metric's name ends in a known one. The config names
the metrics of a run: `metrics: {top_k_accuracy: {k: 5}, mine: {}}`. Each is val/<name> in
metrics.csv, summary.json and the logger. The loss and the metrics of generated answers are not
registered: every run of their task has them.
"""

from dataclasses import dataclass
from typing import Literal

from xformer_kit.registry import Registry, at_least


class MetricArguments:
    """What a run passes to the constructor of a metric."""

    classes: int  # number of classes, or of tokens


METRICS = Registry("metric", caller_arguments=MetricArguments, group="metrics", several=True)


@dataclass(frozen=True)
class BuiltInMetric:
    """Base of the options of built-in metrics, which tasks/modules/configured_metrics.py creates.

    inputs: what `update` gets. "logits": logits (n, classes) and targets (n,) of tokens or of
    classes; "classes": the same, only of classes; "values": predicted and true numbers (n,);
    "texts": lists of generated answers and of targets.
    """

    inputs = "logits"


@METRICS.register("accuracy", also_called=("top1", "acc"))
class Accuracy(BuiltInMetric):
    """Fraction of the targets that have the largest logit."""


@METRICS.register("top_k_accuracy", also_called=("top_k", "topk", "hits_at_k"))
@dataclass(frozen=True)
class TopKAccuracy(BuiltInMetric):
    """Fraction of the targets that are among the k largest logits."""

    k: int = 5  # largest logits

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, k=1)


@METRICS.register("calibration_error", also_called=("ece", "expected_calibration_error"))
@dataclass(frozen=True)
class CalibrationError(BuiltInMetric):
    """sum_b n_b / n |accuracy_b - confidence_b|, over bins b of equal width of the largest
    probability, the confidence (Guo et al., 2017, arXiv:1706.04599, eq. 3). Keeps two numbers per
    target.
    """

    bins: int = 15  # bins of the confidence
    # how the gaps of bins are combined: their mean, the root of their mean square, the largest
    norm: Literal["l1", "l2", "max"] = "l1"

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, bins=1)


@METRICS.register("f1", also_called=("f_score", "f1_score"))
class F1(BuiltInMetric):
    """2 precision recall / (precision + recall): of the second class if there are two, as GLUE has
    it, else the mean over classes.
    """

    inputs = "classes"


@METRICS.register("matthews", also_called=("mcc", "matthews_correlation"))
class Matthews(BuiltInMetric):
    """Correlation of predicted and true classes (Matthews, 1975; CoLA in GLUE)."""

    inputs = "classes"


@METRICS.register("pearson", also_called=("pearson_correlation",))
class Pearson(BuiltInMetric):
    """Correlation of predicted and true numbers (STS-B in GLUE)."""

    inputs = "values"


@METRICS.register("spearman", also_called=("spearman_correlation",))
class Spearman(BuiltInMetric):
    """Correlation of the ranks of predicted and true numbers. Keeps two numbers per target."""

    inputs = "values"


@METRICS.register("word_error_rate", also_called=("wer",))
class WordErrorRate(BuiltInMetric):
    """Word edits (insertions, deletions, substitutions) from answers to targets, per word of the
    targets.
    """

    inputs = "texts"


@METRICS.register("character_error_rate", also_called=("cer",))
class CharacterErrorRate(BuiltInMetric):
    """Character edits from answers to targets, per character of the targets."""

    inputs = "texts"


def inputs_of(name: str) -> str:
    """Returns what a metric is computed from, `inputs` of its class; "logits" if it has none."""
    return str(getattr(METRICS[name], "inputs", "logits"))
