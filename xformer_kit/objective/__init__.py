"""Objectives: the loss of a batch, in plain torch.

Sums, not means: micro-batches and ranks add up, and the trainer divides by the step's tokens.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from xformer_kit.registry import Context, Fault, Options, Registry, alternatives, config_error
from xformer_kit.tensors.report import ENCODER_LOSS
from xformer_kit.tensors.tokens import Tokens

PER_TOKEN = "nats per token"  # unit of a loss
STEP_COUNTS = "step_counts"  # in a batch: the counts of the step for `Objective.mean_over_step`
# Streams `tokens`, `source`, `target` as Tokens (b, t), and `labels` (b, t), -1 for none.
Batch = Mapping[str, Any]
# The same of one example as arrays (t,); `tokens.document` is a field of the Tokens of `tokens`.
Example = Mapping[str, np.ndarray]
Loss = tuple[Tensor, Tensor, dict[str, Tensor]]  # of a batch, see `Objective.loss`
Predictions = Iterator[tuple[Tensor, Tensor]]  # see `Objective.loss_and_predictions`


def join_pieces(pieces: Sequence[np.ndarray], holes: Sequence[int]) -> np.ndarray:
    """Joins pieces of a text with one id between each two of them, (t,)."""
    pairs = zip(([hole] for hole in holes), pieces[1:], strict=True)
    return np.concatenate([pieces[0], *chain.from_iterable(pairs)]).astype(np.int64)


def blank_ids(rows: int, length: int, device: Any = None) -> Tensor:
    """Returns zeros (rows, length) as the ids of a batch of which only the size matters."""
    return torch.zeros(rows, length, dtype=torch.int64, device=device)


def summed_loss(objective: "Objective", model: Any, batch: Batch) -> Loss:
    """Returns the loss of an objective. Raises ConfigError if it is not (sum, count, report)."""
    loss = objective.loss(model, batch)
    if not isinstance(loss, tuple) or len(loss) != 3:
        rule = f"'{type(objective).__name__}.loss' must return (sum, count, report)"
        raise config_error("task", rule, got=type(loss).__name__)
    nats, count, report = loss
    return nats, count, {name: x for name, x in report.items() if name != ENCODER_LOSS}


def count_real(tokens: Tokens) -> Tensor:
    """Returns the number of tokens without padding, ()."""
    ids: Tensor = tokens.ids  # type: ignore[assignment]
    return ids.new_tensor(ids.numel()) if tokens.real is None else tokens.real.sum()


def trained_stacks(objective: "type[Objective]") -> str:
    """Returns the stacks of the models that an objective can train: encoder and decoder, or
    decoder.
    """
    return ", or ".join(" and ".join(stacks) for stacks in objective.needs)


class Objective:
    """Base of the objectives. `loss` has no default.

    `stacks` and the tokenizers are set before `example` is called.
    """

    needs: tuple[tuple[str, ...], ...] = (("decoder",),)  # the sets of stacks that it can train
    # the forms of corpora that it can train on: text, pairs, labelled
    reads: tuple[str, ...] = ("text",)
    own_data: bool = False  # whether it needs data of one's own, so that no fix proposes it
    documents: bool = False  # whether it separates the documents of a text (data.documents)
    multi_token: bool = False  # whether it trains the additional predictions of extras
    # names of `xformer_kit.laws` that all components must keep; others are refused
    laws: tuple[str, ...] = ()
    # model -> its mask, if the command line sets none
    masks: Mapping[str, str] = {}
    # what a trained model does with a text: "goes on", "answers", "fills" one token per hole,
    # "restores" spans, "labels"; "": nothing
    text_use: str = ""
    # whether every token is predicted once, so that bits per byte are defined
    predicts_every_token: bool = False
    # what metrics can be computed from: "logits" of tokens or classes, "classes", "values", "texts"
    # that are generated
    outputs: ClassVar[tuple[str, ...]] = ()
    loss_unit: str = PER_TOKEN  # of other units there is no perplexity
    # average share of the tokens for which the head is computed in training
    given_logits: float = 1.0
    # special tokens, such as a start, an end, a mask; options may add more to an instance
    specials: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ()  # those of the model
    tokenizer: Any = None  # of the predicted text
    source_tokenizer: Any = None  # of the source, if it is another one
    # streams that are predicted; their last token is not read
    predicted: tuple[str, ...] = ()

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Faults of the composed model for this objective."""
        yield from ()

    def example(self, example: Example, draw: torch.Generator) -> Example:
        """Transforms an example of the corpus; `draw` is the random generator of this example in
        this epoch.
        """
        return example

    def add_step_totals(self, model: Any, batch: Batch, total: Callable[[Tensor], Tensor]) -> Batch:
        """Adds values that the loss of each micro-batch needs of the whole step, as tensors with
        one row per example: if modules have losses, those for `mean_over_step`. `batch` holds all
        rows of an optimizer step on this rank; `total` sums a tensor over ranks, and either all
        ranks call it or none.
        """
        if not model.has_losses:
            return batch
        counts = total(self._counts(batch))
        rows = len(next(stream for stream in batch.values() if isinstance(stream, Tokens)).ids)
        return {**batch, STEP_COUNTS: counts.expand(rows, -1)}

    def mean_over_step(self, report: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Returns the report of a micro-batch with the losses of modules, which are means over the
        tokens that a stack reads in it, scaled to their share in the mean over the step.

        The trainer multiplies them by the predictions p_m of the micro-batch and divides by those p
        of the step, so that the factor is p / p_m times r_m / r, with r the tokens that are read.
        """
        if "loss" not in report or STEP_COUNTS not in batch:
            return report
        step = batch[STEP_COUNTS][0].to(report["loss"].dtype).clamp(min=1)
        shares = self._counts(batch) / step
        *of_encoder, scale = shares[1:] / shares[0].clamp(min=1 / step[0])
        loss = report["loss"] * scale
        if of_encoder and ENCODER_LOSS in report:
            loss = loss + report[ENCODER_LOSS] * (of_encoder[0] - scale)
        return {**report, "loss": loss}

    def _counts(self, batch: Batch) -> Tensor:
        """The numbers of predictions and of the tokens that each stack reads, first the encoder."""
        streams = {name: x for name, x in sorted(batch.items()) if isinstance(x, Tokens)}
        read = [
            tokens.map(lambda field: field[:, :-1]) if name in self.predicted else tokens
            for name, tokens in streams.items()
        ]
        return torch.stack([self.count_predictions(batch), *map(count_real, read)])

    def count_predictions(self, batch: Batch) -> Tensor:
        """Returns the number of tokens that `loss` returns, before the forward pass: by default
        that of labels that are not negative, without labels that of tokens.
        """
        return (batch["labels"] >= 0).sum() if "labels" in batch else count_real(batch["tokens"])

    def loss(self, model: Any, batch: Batch) -> Loss:
        """Returns (sum in nats: scalar of fp32, number of tokens: scalar, report of the model).
        `model` is a `model.Model`.

        The report's `loss`, per token, is trained in addition to the sum; its other scalars are
        logged, summed over the step's micro-batches and ranks.
        """
        raise NotImplementedError

    def loss_and_predictions(self, model: Any, batch: Batch) -> tuple[Loss, Predictions]:
        """Returns `loss`, and what metrics are computed from, in parts: logits (n, classes) in fp32
        and targets (n,) of the n predictions of a part, without padding. Called in evaluation if
        the run has metrics; an objective with `outputs` defines it.
        """
        raise NotImplementedError

    def num_classes(self, model: Any) -> int:
        """Returns the number of logits of a prediction."""
        return int(model.vocab_size)

    def check_examples(self, examples: Iterable[Example]) -> None:
        """Raises ConfigError for examples of the corpus that the objective cannot transform."""

    def size(self, batch: Batch) -> int | Tensor:
        """Returns the number of tokens of a batch that the model reads, without padding."""
        read = [
            stream.map(lambda field: field[:, 1:]) if name in self.predicted else stream
            for name, stream in batch.items()
            if isinstance(stream, Tokens)
        ]
        return sum(t.ids.numel() if t.real is None else t.real.sum() for t in read)

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        """Returns a batch of `rows` examples of `length` tokens."""
        raise NotImplementedError


def prefix_fault(context: Context, reader: str, fix: str) -> Fault:
    """The fault of a prefix mask if `reader`, an objective or a stack, has no prefix."""
    return Fault(
        "",
        f"mask '{context.names['mask']}' is for a prefix, which {reader} does not have",
        fix=f"Use {fix}.",
    )


def future_fault(context: Context, reader: str, fix: str) -> Fault:
    """The fault of a mask that shows `reader` the tokens that it has to predict."""
    return Fault(
        "",
        f"mask '{context.names['mask']}' sees the future, so {reader} would read the token that it"
        " has to predict",
        fix=f"Use {fix}.",
    )


def causal_mask_fixes(context: Context, *masks: str) -> str:
    """Fixes that hide the future: an option of the present mask, or one of `masks`, as far as the
    attention supports them.
    """
    if context.attn.computes == "recurrence":
        return "mask=causal"  # a state holds the whole past
    option = context.options.get("mask", {}).get("causal") is False
    return alternatives(["mask.causal=true"] * option + [f"mask={name}" for name in masks])


OBJECTIVES = Registry("objective", base=Objective, group="task")


def objective_of(config: Mapping[str, Any]) -> Any:
    """Returns the objective of a config, with the stacks that it trains."""
    objective = OBJECTIVES.create(config["task"])
    objective.stacks = tuple(stack for stack in ("encoder", "decoder") if stack in config["model"])
    return objective


from xformer_kit.objective import (  # noqa: E402  (its entries; the registry comes first)
    denoising,
    language_modeling,
    masked_language_modeling,
    prefix_language_modeling,
    seq2seq,
    text_head,
)
