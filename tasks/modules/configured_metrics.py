"""Metrics that a config names, built-in ones and a user's own, over a split and all ranks."""

import inspect
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MulticlassF1Score,
    MulticlassMatthewsCorrCoef,
)
from torchmetrics.regression import PearsonCorrCoef, SpearmanCorrCoef
from torchmetrics.text import CharErrorRate, WordErrorRate

from tasks import Config, Metrics
from tasks.modules.split_metrics import one_number
from xformer_kit.metrics import METRICS
from xformer_kit.metrics import registered as settings
from xformer_kit.metrics.registered import BuiltInMetric, inputs_of
from xformer_kit.registry import config_error
from xformer_kit.registry.messages import one_line

Inputs = tuple[Any, Any]  # the arguments of `update`


class CalibrationError(MulticlassCalibrationError):
    """The same for logits: torchmetrics takes numbers from 0 to 1 as probabilities."""

    def update(self, logits: Tensor, target: Tensor) -> None:
        super().update(logits.softmax(-1), target)


def _top_k_accuracy(options: settings.TopKAccuracy, classes: int) -> Metric:
    if options.k >= classes:
        raise config_error(
            "metrics.top_k_accuracy.k",
            "must be below the number of classes",
            got=f"{options.k} of {classes}",
        )
    return MulticlassAccuracy(classes, top_k=options.k, average="micro")


class F1(MulticlassF1Score):
    """That of the second of two classes, or the mean over more."""

    def __init__(self, classes: int):
        super().__init__(classes, average="none" if classes == 2 else "macro")

    def compute(self) -> Tensor:
        found = super().compute()
        return found[1] if found.numel() == 2 else found


class Matthews(MulticlassMatthewsCorrCoef):
    """0 if only one class is predicted or true, as in scikit-learn and GLUE: the correlation is 0/0
    then, for which torchmetrics has a number above 0.
    """

    def compute(self) -> Tensor:
        constant = any((self.confmat.sum(dim) > 0).sum() < 2 for dim in (0, 1))
        return self.confmat.new_zeros((), dtype=torch.float) if constant else super().compute()


CREATE: dict[type, Callable[[Any, int], Metric]] = {
    settings.Accuracy: lambda _, classes: MulticlassAccuracy(classes, average="micro"),
    settings.TopKAccuracy: _top_k_accuracy,
    settings.CalibrationError: lambda options, classes: CalibrationError(
        classes, n_bins=options.bins, norm=options.norm
    ),
    settings.F1: lambda _, classes: F1(classes),
    settings.Matthews: lambda _, classes: Matthews(classes),
    settings.Pearson: lambda *_: PearsonCorrCoef(),
    settings.Spearman: lambda *_: SpearmanCorrCoef(),
    settings.WordErrorRate: lambda *_: WordErrorRate(),
    settings.CharacterErrorRate: lambda *_: CharErrorRate(),
}


def create_metrics(
    config: Config,
    classes: int,
    device: torch.device,
    inputs: Sequence[str] = ("logits", "classes", "values"),
    synced: bool = True,
) -> dict[str, Metric]:
    """Returns the metrics of a config that are computed from one of `inputs`, by name.

    classes: number of logits; synced: whether `compute` is over all ranks, each of which must call
    it.

    Raises ConfigError for a user's metric that is not a `torchmetrics.Metric`.
    """
    found: dict[str, Metric] = {}
    for name, node in (config.get("metrics") or {}).items():
        if inputs_of(name) not in inputs:
            continue
        metric = METRICS.create({"name": name} | dict(node), classes=classes)
        if isinstance(metric, BuiltInMetric):
            with warnings.catch_warnings():  # on memory, which the docstrings of ours state
                warnings.simplefilter("ignore", UserWarning)
                metric = CREATE[type(metric)](metric, classes)
        if not isinstance(metric, Metric):
            raise config_error(
                f"metrics.{name}",
                "must be a torchmetrics.Metric",
                got=type(metric).__name__,
                fix="Derive it from that.",
            )
        for one in metric.modules() if not synced else ():
            if isinstance(one, Metric):
                one.distributed_available_fn = lambda: False
        found[name] = metric.to(device)
    return found


def check_metrics(config: Config, classes: int) -> None:
    """Raises ConfigError for a metric that cannot be created, that raises for random inputs, or
    whose value for them is not one number; for the start of a run, before it trains.
    """
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(8, classes, generator=draw)
    target = torch.randint(classes, (8,), generator=draw)
    examples: dict[str, Inputs] = {
        "logits": (logits, target),
        "classes": (logits, target),
        "values": (logits[:, 0], logits[:, -1]),
        "texts": (["a b", "c d"], ["a b", "c e"]),
    }
    for inputs, example in examples.items():
        for name, metric in create_metrics(
            config, classes, torch.device("cpu"), [inputs], False
        ).items():
            try:
                metric.update(*example)
                value = metric.compute()
            except Exception as error:  # of a user's code
                frames = traceback.extract_tb(error.__traceback__)
                own = [one for one in frames if one.filename == inspect.getfile(type(metric))]
                frame = (own or frames)[-1]
                raise config_error(
                    f"metrics.{name}",
                    "must be computable from 8 random predictions",
                    f"{type(error).__name__}: {one_line(error, 120)}",
                    f"See line {frame.lineno} of '{frame.filename}'.",
                ) from None
            one_number(name, value)


def text_measures(config: Config, pairs: Sequence[tuple[str, str]]) -> Metrics:
    """Returns the metrics of (answer, target) pairs; {} without pairs."""
    if not pairs:
        return {}
    answers, targets = map(list, zip(*pairs, strict=True))
    metrics = create_metrics(config, 0, torch.device("cpu"), ["texts"], synced=False)
    for metric in metrics.values():
        metric.update(answers, targets)
    return {name: one_number(name, metric.compute()) for name, metric in metrics.items()}
