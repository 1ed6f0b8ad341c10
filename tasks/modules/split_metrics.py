"""Metrics of a whole split over all ranks."""

import math
from collections.abc import Mapping
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from tasks import Metrics
from xformer_kit.metrics import of_split
from xformer_kit.objective import PER_TOKEN, summed_loss
from xformer_kit.registry import config_error


class Likelihood(Metric):
    """Cross-entropy per token, perplexity and, for text, bits per byte.

    loss = nats / tokens; perplexity = exp(loss); bits per byte = loss / ln 2 / bytes_per_token.
    Every token has the same weight. bytes_per_token: UTF-8 bytes per token of the split; None if it
    is not text. per_token: whether there is a perplexity, since the loss is per token.
    """

    full_state_update = False
    higher_is_better = False
    is_differentiable = False
    nats: Tensor
    tokens: Tensor

    def __init__(
        self,
        bytes_per_token: float | None,
        dtype: torch.dtype = torch.float64,
        per_token: bool = True,
    ):
        super().__init__()
        self.bytes_per_token = bytes_per_token
        self.per_token = per_token
        self.add_state("nats", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")

    def update(self, nats: Tensor, tokens: Tensor | int) -> None:
        """nats: the sum of a batch's cross-entropies; tokens: their number."""
        self.nats += nats
        self.tokens += tokens

    def compute(self) -> Metrics:
        return self.of_loss((self.nats / self.tokens).item())

    def of_loss(self, loss: float) -> Metrics:
        """Returns loss (nats per token), perplexity and, for text, bits_per_byte."""
        metrics = {"loss": loss}
        if self.per_token:
            metrics["perplexity"] = math.exp(loss) if loss < 700 else math.inf
        if self.bytes_per_token is not None:
            metrics["bits_per_byte"] = loss / math.log(2) / self.bytes_per_token
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
        loss_unit: str = PER_TOKEN,
    ):
        dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no fp64
        likelihood = partial(Likelihood, dtype=dtype, per_token=loss_unit == PER_TOKEN)
        self.total = likelihood(bytes_per_token).to(device)
        self.parts = {name: likelihood(size).to(device) for name, size in parts.items()}
        self.of_predictions = of_predictions

    def evaluate(self, objective: Any, model: Any, batch: Any, part: str | None) -> None:
        """Adds a batch, which is of this part of a mixture."""
        if not self.of_predictions:
            nats, count, _ = summed_loss(objective, model, batch)
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
        metrics |= {name: one_number(name, m.compute()) for name, m in self.of_predictions.items()}
        for part, likelihood in self.parts.items():
            # Marks it as updated: another rank may have batches.
            likelihood.update(likelihood.nats.new_zeros(()), 0)
            part_metrics = likelihood.compute()
            if not math.isnan(part_metrics["loss"]):
                metrics |= of_split(part_metrics, f"{part}/")
        return metrics

    def names(self) -> list[str]:
        """The names of the metrics that `compute` returns if each part has a batch."""
        of_parts = (of_split(one.of_loss(0.0), f"{part}/") for part, one in self.parts.items())
        return [*self.total.of_loss(0.0), *chain(*of_parts), *self.of_predictions]

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
