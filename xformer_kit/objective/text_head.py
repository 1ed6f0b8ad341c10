"""Classification and regression: a label of a whole text is predicted."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.objective import (
    OBJECTIVES,
    Batch,
    Example,
    Loss,
    Objective,
    Predictions,
    blank_ids,
)
from xformer_kit.registry import Fault, config_error, in_range, suggestion
from xformer_kit.tensors.tokens import Tokens

SUMMARY = "<cls>"


@dataclass(kw_only=True, eq=False)
class TextHead(Objective):
    """Base: the label of a text is predicted from one state h of the model, W h + b, where W and b
    are the head's rows of special tokens, one per output. With model.head_transform they read
    transform(h).

    An encoder reads `<cls> text`. With pool=last a model reads `text <cls>` (Radford et al., 2018,
    Improving language understanding by generative pre-training, section 3.2).
    """

    needs = (("encoder",), ("decoder",))
    reads = ("pairs",)
    own_data = True
    text_use = "labels"
    laws = ("padding",)
    given_logits = 0.0  # one token of a text
    loss_unit = "per text"

    # h: that of <cls> at the start, that of <cls> at the end, or the mean over the real tokens;
    # null is first in an encoder, last in a decoder
    pool: Literal["first", "last", "mean"] | None = None

    @classmethod
    def cannot(cls, options, context):
        first = (options.pool or ("first" if context.stack == "encoder" else "last")) == "first"
        if first and not context.mask.sees_future:
            yield Fault(
                "",
                f"mask '{context.names['mask']}' hides the text from its first token, which"
                " task.pool=first reads",
                fix="Use mask=full, or task.pool=last.",
            )

    @property
    def pooling(self) -> str:
        """`pool`, or its default for the model's stack."""
        return self.pool or ("first" if "encoder" in self.stacks else "last")

    def example(self, example: Example, draw: torch.Generator) -> Example:
        """{source, target} -> {tokens (n + 1,), labels (1,)}."""
        label = np.array([self.label(example["target"])], dtype=np.int64)
        return self.text_example(example["source"]) | {"labels": label}

    def text_example(self, source: np.ndarray) -> dict[str, np.ndarray]:
        """Returns {tokens (n + 1,)} of a text (n,) whose label is not known."""
        sides = (source, [self.tokenizer.special(SUMMARY)])
        tokens = np.concatenate(sides if self.pooling == "last" else sides[::-1])
        return {"tokens": tokens.astype(np.int64)}

    def predicted_labels(self, outputs: Tensor) -> list[tuple[str, float | None]]:
        """Returns the labels for the outputs (n,) of a text, the likeliest first, each with its
        probability, or None if it has none.
        """
        raise NotImplementedError

    def label(self, ids: np.ndarray) -> int:
        """Returns the whole number that stands for a label in a batch. Raises ConfigError for a
        text that is no label.
        """
        raise NotImplementedError

    def check_examples(self, examples: Iterable[Example]) -> None:
        targets = (example["target"] for example in examples)
        for ids in {target.tobytes(): target for target in targets}.values():
            self.label(ids)

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        ids = blank_ids(rows, length, device)
        return {"tokens": Tokens(ids=ids), "labels": ids[:, :1]}

    def loss(self, model: Any, batch: Batch) -> Loss:
        return self.loss_and_predictions(model, batch)[0]

    def head_outputs(self, model: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the outputs (b, outputs) in fp32 and the model's report."""
        hidden, report = model.hidden(batch["tokens"])
        pooled = pool(hidden, batch["tokens"].real, self.pooling)
        logits = model.head(pooled[:, None])[:, 0].float()
        first = self.tokenizer.special(self.specials[1])
        report = self.mean_over_step(report, batch)
        return logits[:, first : first + len(self.specials) - 1], report

    def count_predictions(self, batch: Batch) -> Tensor:
        return batch["labels"].new_tensor(len(batch["labels"]))


def pool(hidden: Tensor, real: Tensor | None, how: str) -> Tensor:
    """Returns the state (b, dim) of hidden (b, t, dim): of the first or the last real token, or the
    mean over the real tokens. real: (b, t), None without padding.
    """
    if real is None:
        real = hidden.new_ones(hidden.shape[:2], dtype=torch.bool)
    if how == "mean":
        weight = real[..., None].to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1)
    at = real.long().argmax(1)
    if how == "last":
        at = real.shape[1] - 1 - real.flip(1).long().argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), at]


@OBJECTIVES.register("classification", also_called=("classify", "sequence_classification", "glue"))
@dataclass(kw_only=True, eq=False)
class Classification(TextHead):
    """-log p(class | text) in nats, p the softmax over the classes (Devlin et al., 2019,
    arXiv:1810.04805, section 4.1).

    Sources are texts, targets are names of classes.
    """

    outputs = ("logits", "classes")
    loss_unit = "nats per text"

    classes: list[int | str]  # names of the classes, as the data have them
    label_smoothing: float = 0.0  # share of the target that is uniform over classes, in training

    def __post_init__(self) -> None:
        self.names = [str(name) for name in self.classes]
        self.specials = (SUMMARY, *(f"<class {name}>" for name in self.names))

    @classmethod
    def check(cls, options, context):
        yield from in_range(options, label_smoothing=(0, 1))
        names = [str(name) for name in options.classes]
        if len(names) < 2 or len({*names}) < len(names):
            yield Fault(
                "classes", "must name two classes or more, each once", options.classes, "Try [0,1]."
            )

    @cached_property
    def _of_tokens(self) -> dict[tuple[int, ...], int]:
        """Tokens of a name -> index of its class. Tokens and not decoded texts are compared, since
        a tokenizer may change case and white space.
        """
        found: dict[tuple[int, ...], int] = {}
        for index, name in enumerate(self.names):
            ids = tuple(self.tokenizer.encode(name).tolist())
            if index != found.setdefault(ids, index):
                both = f"'{self.names[found[ids]]}' and '{name}'"
                raise config_error(
                    "tokenizer",
                    "must tell the names of the classes apart",
                    both,
                    "Use tokenizer=bpe.",
                )
        return found

    def label(self, ids: np.ndarray) -> int:
        if (index := self._of_tokens.get(tuple(ids.tolist()))) is None:
            text = str(self.tokenizer.decode(ids)).strip()
            raise config_error(
                "task.classes",
                f"no class is called '{text}', which is a label of the data",
                fix=suggestion(text, self.names, "The classes are"),
            )
        return index

    def predicted_labels(self, outputs: Tensor) -> list[tuple[str, float | None]]:
        probabilities, order = outputs.softmax(-1).sort(descending=True, stable=True)
        names = (self.names[i] for i in order.tolist())
        return [*zip(names, probabilities.tolist(), strict=True)]

    def num_classes(self, model: Any) -> int:
        return len(self.names)

    def loss_and_predictions(self, model: Any, batch: Batch) -> tuple[Loss, Predictions]:
        (logits, report), target = self.head_outputs(model, batch), batch["labels"][:, 0]
        smoothing = self.label_smoothing if model.training else 0.0
        nats = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
        count = torch.tensor(len(target), device=target.device)
        return (nats, count, report), iter([(logits, target)])


@OBJECTIVES.register("regression", also_called=("regress", "sequence_regression"))
@dataclass(kw_only=True, eq=False)
class Regression(TextHead):
    """(y - number)^2, y the output for the text. Sources are texts, targets are numbers."""

    outputs = ("values",)
    loss_unit = "squared error per text"
    specials = (SUMMARY, "<value>")

    def label(self, ids: np.ndarray) -> int:
        """The bits of the number as fp32, since labels of a batch are whole numbers."""
        text = "".join(self.tokenizer.decode(ids).split())  # WordPiece decodes 2.5 as 2. 5
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise config_error(
                "task",
                "regression learns from numbers, and a label of the data is none",
                f"'{text}'",
                "Mend it, or use task=classification.",
            )
        return int(np.float32(number).view(np.int32))

    def predicted_labels(self, outputs: Tensor) -> list[tuple[str, float | None]]:
        return [(f"{outputs.item():.6g}", None)]

    def loss_and_predictions(self, model: Any, batch: Batch) -> tuple[Loss, Predictions]:
        outputs, report = self.head_outputs(model, batch)
        target = batch["labels"][:, 0].to(torch.int32).view(torch.float32)
        error = F.mse_loss(outputs[:, 0], target, reduction="sum")
        count = torch.tensor(len(target), device=target.device)
        return (error, count, report), iter([(outputs[:, 0], target)])
