"""Metrics of a whole split over all ranks, and metrics of generated texts."""

import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from tasks import Metrics
from xformer_kit.registry import config_error


class Likelihood(Metric):
    """Cross-entropy per token, perplexity and, for text, bits per byte.

    loss = nats / tokens; perplexity = exp(loss); bits per byte = loss / ln 2 / bytes_per_token.
    Every token has the same weight. bytes_per_token: UTF-8 bytes per token of the split; None if it
    is not text.
    """

    full_state_update = False
    higher_is_better = False
    is_differentiable = False
    nats: Tensor
    tokens: Tensor

    def __init__(self, bytes_per_token: float | None, dtype: torch.dtype = torch.float64):
        super().__init__()
        self.bytes_per_token = bytes_per_token
        self.add_state("nats", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")

    def update(self, nats: Tensor, tokens: Tensor | int) -> None:
        """nats: the sum of a batch's cross-entropies; tokens: their number."""
        self.nats += nats
        self.tokens += tokens

    def compute(self) -> Metrics:
        loss = (self.nats / self.tokens).item()
        return likelihood_metrics(loss, self.bytes_per_token)


def likelihood_metrics(loss: float, bytes_per_token: float | None) -> Metrics:
    """Returns loss (nats per token), perplexity and, for text, bits_per_byte."""
    metrics = {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
    if bytes_per_token is not None:
        metrics["bits_per_byte"] = loss / math.log(2) / bytes_per_token
    return metrics


class SplitMetrics:
    """The likelihood of a split and, for a mixture, of each of its parts, and the metrics of
    predictions that the config names.
    """

    def __init__(
        self,
        bytes_per_token: float | None,
        parts: Mapping[str, float | None],
        device: torch.device,
        of_predictions: Mapping[str, Metric] = MappingProxyType({}),
        loss_unit: str = "nats per token",
    ):
        dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no fp64
        self.total = Likelihood(bytes_per_token, dtype).to(device)
        self.parts = {name: Likelihood(size, dtype).to(device) for name, size in parts.items()}
        self.of_predictions = of_predictions
        self.has_perplexity = loss_unit == "nats per token"

    def evaluate(self, objective: Any, model: Any, batch: Any, part: str | None) -> None:
        """Adds a batch, which is of this part of a mixture."""
        if not self.of_predictions:
            nats, count, _ = objective.loss(model, batch)
        else:
            (nats, count, _), predictions = objective.loss_and_predictions(model, batch)
            for inputs in predictions:
                for metric in self.of_predictions.values():
                    metric.update(*inputs)
        self.update(part, nats, count)

    def update(self, part: str | None, nats: Tensor, tokens: Tensor | int) -> None:
        self.total.update(nats, tokens)
        if part in self.parts:
            self.parts[part].update(nats, tokens)

    def compute(self) -> Metrics:
        """Returns loss, ..., accuracy, ..., and prose/loss, ... for each part with a batch on any
        rank.
        """
        metrics = self.total.compute()
        if not self.has_perplexity:
            del metrics["perplexity"]
        metrics |= {name: one_number(name, m.compute()) for name, m in self.of_predictions.items()}
        for part, likelihood in self.parts.items():
            # Marks it as updated: another rank may have batches.
            likelihood.update(likelihood.nats.new_zeros(()), 0)
            part_metrics = likelihood.compute()
            if not math.isnan(part_metrics["loss"]):
                metrics |= {f"{part}/{name}": value for name, value in part_metrics.items()}
        return metrics

    def names(self) -> list[str]:
        """The names of the metrics that `compute` returns if each part has a batch."""
        kinds = {"": self.total} | {f"{part}/": one for part, one in self.parts.items()}
        likelihood = [
            f"{prefix}{name}"
            for prefix, one in kinds.items()
            for name in likelihood_metrics(0.0, one.bytes_per_token)
            if self.has_perplexity or prefix or name != "perplexity"
        ]
        return [*likelihood, *self.of_predictions]

    def reset(self) -> None:
        for metric in (self.total, *self.parts.values(), *self.of_predictions.values()):
            metric.reset()


def one_number(name: str, value: Any) -> float:
    """Returns the value of a configured metric. Raises ConfigError if it is not one number."""
    if isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1):
        return float(value)
    got = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    raise config_error(
        f"metrics.{name}", "its compute must return one number", got, "Register one per number."
    )


def text_metrics(predictions: list[str], references: list[str]) -> Metrics:
    """Returns exact_match, the fraction of predictions that equal their reference. If a reference
    has at least four words, also ROUGE-L and, with sacrebleu installed, BLEU and chrF, in percent.
    """
    metrics = {"exact_match": _exact_match(predictions, references)}
    if not any(text.count(" ") >= 3 for text in references):
        return metrics
    if importlib.util.find_spec("sacrebleu"):
        import sacrebleu

        metrics["bleu"] = sacrebleu.corpus_bleu(predictions, [references]).score
        metrics["chrf"] = sacrebleu.corpus_chrf(predictions, [references]).score
    return metrics | rouge(predictions, references, ("rougeL",))


def rouge(
    predictions: list[str],
    references: list[str],
    names: Sequence[str] = ("rouge1", "rouge2", "rougeL"),
) -> Metrics:
    """F1 of shared n-grams (rouge1, rouge2) and of the longest common subsequence of words
    (rougeL), in percent, each the mean over the examples (Lin, 2004,
    https://aclanthology.org/W04-1013, sections 2 and 3).

    Words are runs of letters and digits in lower case, not stemmed. `rouge_score` supports a to z
    only, with equal results; this supports any alphabet.
    """
    from torchmetrics.functional.text.rouge import rouge_score

    scores = rouge_score(
        predictions,
        references,
        # rougeLsum is not supported: torchmetrics downloads nltk's data to split sentences
        rouge_keys=tuple(names),
        normalizer=lambda text: re.sub(r"[\W_]+", " ", text.lower()),
        tokenizer=str.split,
    )
    return {name: 100 * scores[f"{name}_fmeasure"].item() for name in names}


def translation_metrics(predictions: list[str], references: list[str]) -> dict[str, float | str]:
    """Returns exact_match; BLEU (with sacrebleu's signature), chrF, TER and ROUGE in percent.
    Raises ConfigError if sacrebleu is not installed.
    """
    try:
        from sacrebleu.metrics import BLEU, CHRF, TER
    except ImportError:
        raise config_error(
            "sacrebleu",
            "is not installed, and BLEU, chrF and TER need it",
            fix="Use pip install sacrebleu.",
        ) from None
    metrics: dict[str, float | str] = {"exact_match": _exact_match(predictions, references)}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        metrics[name] = metric.corpus_score(predictions, [references]).score
        if name == "bleu":
            metrics["signature"] = str(metric.get_signature())
    return metrics | rouge(predictions, references)


def _exact_match(predictions: list[str], references: list[str]) -> float:
    """The fraction of predictions that equal their reference."""
    return sum(a == b for a, b in zip(predictions, references, strict=True)) / len(references)
