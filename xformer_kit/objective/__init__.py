"""What is learned? The loss of a batch, in plain torch.

    needs     the sets of stacks that it can train
    reads     the forms of corpora that it can train on: text, pairs, labelled documents whether it
    keeps the documents of a text apart, where the corpus numbers them (data.documents)
    future    whether it trains the blocks of model.future_tokens
    laws      the laws that all its parts must keep: one that names a law in its `breaks` is refused
    specials  tokens beside those of the text, such as a start, an end, a mask
    cannot    why a composed model cannot be trained on this, or None
    example   what it makes of one example of the corpus, in the loader
    whole     what micro-batches must know of their step
    loss      the summed loss of a batch, the number of tokens that it is over, and the model's
    report
    blank     a batch of the largest size, to measure memory with
    speaks    what a trained model does with a text: it goes on with it, answers it, or fills holes
    in it

Sums, not means: micro-batches and ranks add up, and whoever steps the optimizer divides by the
step's tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import Context, Registry, listed

Batch = Mapping[str, Any]  # see xformer_kit/data/batch.py


def between(pieces: Sequence[np.ndarray], holes: Sequence[int]) -> np.ndarray:
    """Pieces of a text with one id between each two of them, (t,)."""
    parts: list[Any] = [np.asarray(pieces[0])]
    for hole, piece in zip(holes, pieces[1:], strict=True):
        parts += [[hole], piece]
    return np.concatenate(parts).astype(np.int64)


class Objective:
    """What every objective answers. `loss` has no default.

    Set before examples are made: `stacks`, those of the model; `tokenizer`, of what is predicted;
    `source_tokenizer`, of the source where that has another.
    """

    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("decoder",),)
    reads: ClassVar[tuple[str, ...]] = ("text",)
    documents: ClassVar[bool] = False
    future: ClassVar[bool] = False
    laws: ClassVar[tuple[str, ...]] = ()  # names of `xformer_kit.laws`
    masks: ClassVar[
        Mapping[str, str]
    ] = {}  # model -> the mask that it has where the command line names none
    # "goes on", "answers", "fills" one token a hole, "restores" spans; "": nothing
    speaks: ClassVar[str] = ""
    # whether every token is predicted once, so that bits per byte say something
    covers: ClassVar[bool] = False
    # share of the tokens read that the head is given in training, on average
    given_logits: float = 1.0
    specials: tuple[str, ...] = ()  # an instance may have more, by its options
    stacks: tuple[str, ...] = ()
    tokenizer: Any = None
    source_tokenizer: Any = None

    @classmethod
    def cannot(cls, context: Context) -> str | None:
        """A sentence with the reason and the way out, or None where the composed model can be
        trained on this.
        """
        return None

    def example(self, example: Mapping[str, Any], draw: torch.Generator) -> Mapping[str, Any]:
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

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """(sum in nats: scalar of fp32, number of tokens: scalar, report of the model). `model` is
        a `model.Model`.

        What the report holds as `loss`, per token, is trained beside the sum; its other scalars are
        written down, summed over the step's micro-batches and ranks.
        """
        raise NotImplementedError

    def size(self, batch: Batch) -> int | Tensor:
        """Tokens that the model reads of a batch, without padding: what a speed counts."""
        streams = [v for v in batch.values() if isinstance(v, Tokens)]
        return sum(t.ids.numel() if t.real is None else t.real.sum() for t in streams)  # type: ignore[misc]

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        """A batch of `rows` examples of `length` tokens."""
        raise NotImplementedError


def hiding(context: Context, *masks: str) -> str:
    """Ways to a mask that hides the future: an option of the one that there is, or those of these
    masks that the attention can read.
    """
    mask, in_order = (
        context.options.get("mask", {}),
        context.attn.computes == "recurrence",
    )
    if in_order:
        return "mask=causal"  # a state is of the whole past
    return listed(
        ["mask.causal=true"] * (mask.get("causal") is False) + [f"mask={name}" for name in masks]
    )


OBJECTIVES = Registry("objective", base=Objective, group="task")


def objective_of(config: Mapping[str, Any]) -> Any:
    """The objective of a config, which knows the stacks that it trains."""
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
