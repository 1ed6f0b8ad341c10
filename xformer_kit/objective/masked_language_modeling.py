"""Masked language modelling: hidden tokens are predicted from both sides."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xformer_kit.objective import (
    OBJECTIVES,
    Batch,
    Example,
    blank_ids,
    join_pieces,
    prefix_fault,
)
from xformer_kit.objective.cross_entropy import CrossEntropy, States, labelled
from xformer_kit.registry import Fault, at_least
from xformer_kit.registry.messages import in_open_range
from xformer_kit.tensors.tokens import Tokens

MASK = "<mask>"


@OBJECTIVES.register(
    "masked_language_modeling", also_called=("mlm", "masked_lm"), similar=("bert", "cloze")
)
@dataclass(kw_only=True, eq=False)
class MaskedLanguageModeling(CrossEntropy):
    """-sum log p(token | the text with some tokens hidden) in nats (Devlin et al., 2019,
    arXiv:1810.04805, section 3.1).

    Each token is selected with probability `rate`, at least one per example. A selected token is
    replaced by `<mask>` or a random token, or kept, and predicted. The selection differs in every
    epoch (Liu et al., 2019, arXiv:1907.11692, section 4.1). With whole_word the tokens of a word
    are selected together.
    """

    needs = (("encoder",),)
    documents = True
    specials = (MASK,)
    text_use = "fills"

    # probability that a token, or with whole_word a word, is to be predicted
    rate: float = 0.15
    mask: float = 0.8  # share of the selected tokens that are replaced by <mask>
    # share that are replaced by a random token; the others are kept
    random: float = 0.1
    whole_word: bool = False  # whether all tokens of a word are selected together

    def __post_init__(self) -> None:
        self.given_logits = self.rate

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from in_open_range(options, "Try 0.15.", closed=True, rate=(0, 1))
        yield from at_least(options, mask=0, random=0)
        if options.mask + options.random > 1:
            yield Fault(
                "mask",
                "must be at most 1 together with random",
                got=f"{options.mask} and {options.random}",
                fix="Try 0.8 and 0.1.",
            )

    @classmethod
    def cannot(cls, options, context):
        if context.mask.sees_prefix:
            yield prefix_fault(context, "masked_language_modeling", "mask=full")

    def example(self, example: Example, draw: torch.Generator) -> Example:
        """{tokens (n + 1,)} -> {tokens, labels: (n,)}; the last token of a window, which is also
        the first of the next, is dropped.
        """
        example = {name: values[:-1] for name, values in example.items()}
        tokens = example["tokens"]
        n, real = len(tokens), example.get("tokens.real", np.ones(len(tokens), dtype=bool))
        if self.tokenizer.around:
            real = real & ~np.isin(tokens, self.tokenizer.around[0] + self.tokenizer.around[1])
        word = np.cumsum(self.tokenizer.word_starts(tokens)) if self.whole_word else np.arange(n)
        chosen = (torch.rand(n + 1, generator=draw).numpy() < self.rate)[word] & real
        if real.any() and not chosen.any():
            one = np.flatnonzero(real)[int(torch.randint(int(real.sum()), (), generator=draw))]
            chosen = (word == word[one]) & real
        share = torch.rand(n, generator=draw).numpy()
        random_ids = torch.randint(self.tokenizer.vocab_size, (n,), generator=draw).numpy()
        read = np.where(share < self.mask + self.random, random_ids, tokens)
        read = np.where(share < self.mask, self.tokenizer.special(MASK), read)
        return {
            **example,
            "tokens": np.where(chosen, read, tokens),
            "labels": np.where(chosen, tokens, -1),
        }

    def join_with_blanks(self, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """Returns ids (t,) of a text in pieces with a `<mask>` between each two, for one unknown
        token each; with the tokens that a published model reads around a text.
        """
        holes = [self.tokenizer.special(MASK)] * (len(pieces) - 1)
        return self.tokenizer.whole(join_pieces(pieces, holes))

    def most_likely(self, model: Any, ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Returns the probabilities and ids, (m, count), of the `count` most likely tokens for each
        `<mask>` of ids (t,), in descending order. All masks are predicted at once, as in training.
        """
        hidden, _ = model.hidden(Tokens(ids=ids[None]))
        masked = hidden[:, ids == self.tokenizer.special(MASK)]
        probs = model.head(masked)[0].float().softmax(-1)[:, : self.tokenizer.vocab_size]
        return probs.topk(min(count, probs.shape[-1]))

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        ids = blank_ids(rows, length, device)
        labelled = min(length, math.ceil(2 * self.rate * length))  # more than in any real batch
        labels = torch.where(torch.arange(length, device=device) < labelled, ids, -1)
        return {"tokens": Tokens(ids=ids), "labels": labels}

    def states(self, model: Any, batch: Batch) -> States:
        hidden, report = model.hidden(batch["tokens"])
        return *labelled(hidden, batch["labels"]), report
