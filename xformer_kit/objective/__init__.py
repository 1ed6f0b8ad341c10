"""Objectives: the loss of a batch, in plain torch.

    needs     the sets of stacks that it can train
    reads     the forms of corpora that it can train on: text, pairs, labelled
    documents whether it keeps the documents of a text apart, if the corpus numbers them
    (data.documents)
    further   whether it trains what extras predict in addition to the next token
    laws      the laws that all components must keep: one whose `breaks` names one is refused
    specials  tokens besides those of the text, such as a start, an end, a mask
    cannot    why a composed model cannot be trained on this, or None
    example   one example of the corpus, transformed in the loader
    whole     adds values of the whole step to its micro-batches
    loss      the summed loss of a batch, its number of tokens, and the model's report
    blank     a batch of the largest size, to measure memory with
    speaks    use of a trained model on a text: it continues it, answers it, or fills holes in it

Sums, not means: micro-batches and ranks add up, and the trainer divides by the step's tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import Context, Fault, Options, Registry, listed

Batch = Mapping[str, Any]  # see xformer_kit/data/batch.py
Example = Mapping[str, np.ndarray]  # the same
Loss = tuple[Tensor, Tensor, dict[str, Tensor]]  # of a batch, see `Objective.loss`


def between(pieces: Sequence[np.ndarray], holes: Sequence[int]) -> np.ndarray:
    """Pieces of a text with one id between each two of them, (t,)."""
    parts: list[Any] = [np.asarray(pieces[0])]
    for hole, piece in zip(holes, pieces[1:], strict=True):
        parts += [[hole], piece]
    return np.concatenate(parts).astype(np.int64)


def blank_ids(rows: int, length: int, device: Any = None) -> Tensor:
    """Ids (rows, length) of a batch that only has a size."""
    return torch.zeros(rows, length, dtype=torch.int64, device=device)


class Objective:
    """Base of the objectives. `loss` has no default.

    Set before examples are made: `stacks`, those of the model; `tokenizer`, of what is predicted;
    `source_tokenizer`, of the source where that has another.
    """

    needs: tuple[tuple[str, ...], ...] = (("decoder",),)
    reads: tuple[str, ...] = ("text",)
    documents: bool = False
    further: bool = False
    laws: tuple[str, ...] = ()  # names of `xformer_kit.laws`
    # model -> its mask if the command line names none
    masks: Mapping[str, str] = {}
    # "goes on", "answers", "fills" one token a hole, "restores" spans; "": nothing
    speaks: str = ""
    # whether every token is predicted once, so that bits per byte are defined
    covers: bool = False
    # share of the tokens for which the head is computed in training, on average
    given_logits: float = 1.0
    specials: tuple[str, ...] = ()  # an instance may have more, by its options
    stacks: tuple[str, ...] = ()
    tokenizer: Any = None
    source_tokenizer: Any = None
    # streams that are predicted, so that their last token is not read
    predicted: tuple[str, ...] = ()

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Why the composed model can be trained on this."""
        yield from ()

    def example(self, example: Example, draw: torch.Generator) -> Example:
        """An example of the corpus -> one of this objective; `draw` is its own source of randomness
        in this epoch.
        """
        return example

    def whole(self, model: Any, batch: Batch, total: Callable[[Tensor], Tensor]) -> Batch:
        """All rows of an optimizer step on this rank, before they are split into micro-batches:
        with what the loss of each must know of all, as tensors of a row each. `total` sums a tensor
        over ranks; all of them call it, or none.
        """
        return batch

    def loss(self, model: Any, batch: Batch) -> Loss:
        """(sum in nats: scalar of fp32, number of tokens: scalar, report of the model). `model` is
        a `model.Model`.

        What the report holds as `loss`, per token, is trained beside the sum; its other scalars are
        written down, summed over the step's micro-batches and ranks.
        """
        raise NotImplementedError

    def size(self, batch: Batch) -> int | Tensor:
        """Tokens that the model reads of a batch, without padding: what a speed counts."""
        read = [
            stream.map(lambda field: field[:, 1:]) if name in self.predicted else stream
            for name, stream in batch.items()
            if isinstance(stream, Tokens)
        ]
        return sum(t.ids.numel() if t.real is None else t.real.sum() for t in read)

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        """A batch of `rows` examples of `length` tokens."""
        raise NotImplementedError


def no_prefix(context: Context, reader: str, way: str) -> Fault:
    """The fault of a mask for a prefix where `reader`, an objective or a stack, has none."""
    return Fault(
        "",
        f"mask '{context.names['mask']}' is for a prefix, which {reader} does not have",
        fix=f"Use {way}.",
    )


def reads_ahead(context: Context, reader: str, way: str) -> Fault:
    """The fault of a mask by which `reader` sees what it has to predict."""
    return Fault(
        "",
        f"mask '{context.names['mask']}' sees the future, so {reader} would read the token that it"
        " has to predict",
        fix=f"Use {way}.",
    )


def hiding(context: Context, *masks: str) -> str:
    """Ways to a mask that hides the future: an option of the present one, or one of these masks, as
    far as the attention can read them.
    """
    if context.attn.computes == "recurrence":
        return "mask=causal"  # a state is of the whole past
    option = context.options.get("mask", {}).get("causal") is False
    return listed(["mask.causal=true"] * option + [f"mask={name}" for name in masks])


OBJECTIVES = Registry("objective", base=Objective, group="task")


def objective_of(config: Mapping[str, Any]) -> Any:
    """The objective of a config, with the stacks that it trains."""
    made = OBJECTIVES.create(config["task"])
    made.stacks = tuple(stack for stack in ("encoder", "decoder") if stack in config["model"])
    return made


from xformer_kit.objective import (  # noqa: E402  (its entries; the registry comes first)
    denoising,
    language_modeling,
    masked_language_modeling,
    prefix_language_modeling,
    seq2seq,
)
