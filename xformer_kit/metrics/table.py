"""The table of metrics: unit, direction, printed form, and the tasks that have them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

Value = TypeVar("Value")
VAL, TEST = "val/", "test/"  # prefixes of the metrics of a split
VAL_LOSS, TRAIN_LOSS = "val/loss", "train/loss"
# What other libraries begin the names of metrics of the validation with: val_loss, eval_loss.
SPLIT = re.compile(r"^(val|valid|validation|eval|dev|test)_")

# per_token: those with a loss per token; every_token: those that predict each token of a text;
# labelled: language_modeling of labelled examples; texts: those that write texts
Tasks = Literal["every", "per_token", "every_token", "labelled", "texts"]


@dataclass(frozen=True)
class KnownMetric:
    """A metric whose direction and form are known from the last word of its name."""

    unit: str = ""  # of a value times `scale`
    higher_is_better: bool = False
    tasks: Tasks | None = None  # that report it without an option
    per_token: bool = False  # a mean over tokens, which does not compare between tokenizers
    share: bool = False  # from 0 to 1, printed in percent
    cost: bool = False  # of a run, not of a validation
    digits: int = 2  # decimals of a value by itself, without an interval
    title: str = ""  # in a sentence; by default the name with spaces

    @property
    def scale(self) -> float:
        return 100.0 if self.share else 1.0

    @property
    def of_loss(self) -> bool:
        """Whether it is the loss of a split, or computed from it."""
        return self.tasks in ("every", "per_token", "every_token")


_error, _cost = partial(KnownMetric, "points", share=True), partial(KnownMetric, cost=True)
_score = partial(KnownMetric, "points", higher_is_better=True)
KNOWN: dict[str, KnownMetric] = {
    "loss": KnownMetric("nats", tasks="every", per_token=True, digits=4),
    "perplexity": KnownMetric(tasks="per_token", per_token=True),
    "bits_per_byte": KnownMetric("bits per byte", tasks="every_token", digits=4),
    "bits_per_token": KnownMetric("bits per token", per_token=True),
    "ter": KnownMetric("points", title="TER"),
    "seconds": _cost("s"),
    "params": _cost(),
    "flops": _cost(),
    "flops_per_token": _cost("FLOPs"),
    "peak_memory_bytes": _cost("bytes"),
    "calibration_error": _error(),
    "word_error_rate": _error(),
    "character_error_rate": _error(),
    "accuracy": _score(tasks="labelled", share=True),
    "exact_match": _score(tasks="texts", share=True),
    "sequence_accuracy": _score(tasks="labelled", share=True),
    # of texts, if targets have several words
    "bleu": _score(tasks="texts", title="BLEU"),
    "chrf": _score(tasks="texts", title="chrF"),
    "rouge1": _score(title="ROUGE-1"),
    "rouge2": _score(title="ROUGE-2"),
    "rougeL": _score(tasks="texts", title="ROUGE-L"),
    "matthews": KnownMetric(higher_is_better=True),  # correlations, from -1 to 1
    "pearson": KnownMetric(higher_is_better=True),
    "spearman": KnownMetric(higher_is_better=True),
    "f1": _score(share=True),
    "tokens_per_second": _cost("tokens/s", higher_is_better=True),
}


def known_metric(name: str) -> KnownMetric | None:
    """Returns the metric in whose name this one ends: val/books/hard_exact_match -> exact_match;
    None if there is none.
    """
    last = name.rpartition("/")[2]
    words = [word for word in KNOWN if last == word or last.endswith(f"_{word}")]
    return KNOWN[max(words, key=len)] if words else None


def of_split(metrics: Mapping[str, Value], prefix: str = VAL) -> dict[str, Value]:
    """Returns metrics under their names in the results of a run: loss -> val/loss."""
    return {f"{prefix}{name}": value for name, value in metrics.items()}


def our_metric(name: str) -> str:
    """Returns the name here of a metric that another library calls loss, val_loss or eval_loss."""
    last = name.rpartition("/")[2]
    return TRAIN_LOSS if last == "train_loss" else VAL + (SPLIT.sub("", last) or "loss")
