"""Language modelling: the next token of a text is predicted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from xformer_kit.objective import (
    OBJECTIVES,
    Batch,
    Loss,
    blank_ids,
    causal_mask_fixes,
    future_fault,
    prefix_fault,
)
from xformer_kit.objective.cross_entropy import CrossEntropy, States, labelled
from xformer_kit.tensors.tokens import Tokens


class NextToken(CrossEntropy):
    """Base: each token is predicted from the tokens before it."""

    predicts_every_token = True
    text_use = "goes on"
    laws = ("causality", "cache")
    predicted = ("tokens",)

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        return {"tokens": Tokens(ids=blank_ids(rows, length + 1, device))}

    def count_predictions(self, batch: Batch) -> Tensor:
        return (_target(batch, 1) >= 0).sum()

    def states(self, model: Any, batch: Batch) -> States:
        hidden, report = model.hidden(batch["tokens"].shifted()[0])
        target = _target(batch, 1)
        if "labels" in batch:  # of a corpus that labels only some tokens
            hidden, target = labelled(hidden, target)
        return hidden, target, report


@OBJECTIVES.register(
    "language_modeling", also_called=("lm", "causal_lm", "clm", "next_token"), similar=("gpt",)
)
@dataclass(kw_only=True, eq=False)
class LanguageModeling(NextToken):
    """-sum log p(token | the tokens before it) in nats (Bengio et al., 2003, JMLR 3:1137-1155,
    section 2).

    batch["tokens"]: Tokens of (batch, seq + 1); each of the first `seq` predicts the one after it,
    unless that one is padding or starts another document. batch["labels"], if present: the same
    ids, -1 where nothing is predicted.

    For each further prediction of an extra, training adds its weight times the mean of -log p(token
    `ahead` places later | the tokens up to this one). Each mean is over its targets in the whole
    step.
    """

    reads = ("text", "labelled")
    documents = True
    multi_token = True

    @classmethod
    def cannot(cls, options, context):
        mask = context.mask
        if mask.sees_prefix:
            fix = "mask=causal, or task=prefix_language_modeling"
            yield prefix_fault(context, "language_modeling", fix)
        elif mask.sees_future and not context.cross:
            fix = "task=masked_language_modeling"
            if context.attn.maskable:
                fix = causal_mask_fixes(context, "causal", "sliding_window")
            yield future_fault(context, "language_modeling", fix)

    def add_step_totals(self, model: Any, batch: Batch, total: Callable[[Tensor], Tensor]) -> Batch:
        """Adds the numbers of targets of the next token and of each further prediction in the whole
        step, `targets` (b, 1 + n).
        """
        batch = super().add_step_totals(model, batch, total)
        if not model.predictions:
            return batch
        counts = total(_count(_targets(model, batch)))
        return {**batch, "targets": counts.expand(len(batch["tokens"].ids), -1)}

    def loss(self, model: Any, batch: Batch) -> Loss:
        if model.training and model.predictions:
            return self._multi_token_loss(model, batch)
        return super().loss(model, batch)

    def _multi_token_loss(self, model: Any, batch: Batch) -> Loss:
        """Returns the loss of the next token; the report holds the loss of further predictions:
        `loss`, which is trained, in nats per next token, and one entry per prediction, whose sum
        over the step is its mean.
        """
        target, *later = _targets(model, batch)
        hidden, report = model.hidden(batch["tokens"].shifted()[0], multi_token=True)
        report = self.mean_over_step(report, batch)
        nats, count = self.nats(model, hidden[0], target), (target >= 0).sum()
        counts = batch["targets"][0] if "targets" in batch else _count([target, *later])
        first, *others = counts.to(nats.dtype).clamp(min=1)
        # The trainer divides by the step's next tokens; the scale makes this a division by the
        # targets of each.
        pairs = zip(model.predictions, others, strict=True)
        scale = torch.stack([extra.weight * first / count for extra, count in pairs])
        total, sums = self.nats(model, hidden[1:], torch.stack(later), scale=scale)
        report["loss"] = report.get("loss", 0) + total / count.clamp(min=1)
        names = [prediction.name for prediction in model.predictions]
        return nats, count, report | dict(zip(names, sums / torch.stack(others), strict=True))


def _targets(model: Any, batch: Batch) -> list[Tensor]:
    """The next token, and that of each further prediction: (b, t) each, -1 if there is none."""
    return [_target(batch, ahead) for ahead in (1, *(p.ahead for p in model.predictions))]


def _count(targets: Sequence[Tensor]) -> Tensor:
    """The number of targets that are not negative in each tensor."""
    return torch.stack([(target >= 0).sum() for target in targets])


def _target(batch: Batch, ahead: int) -> Tensor:
    """(b, t): the ids `ahead` places after each token that is read."""
    tokens = batch["tokens"]
    if "labels" in batch:  # of a corpus with labels for some tokens only
        tokens = tokens._replace(ids=batch["labels"])
    return tokens.targets(ahead)
