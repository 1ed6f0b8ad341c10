"""Sequence to sequence: a target is predicted from its source."""

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
    causal_mask_fixes,
    future_fault,
    prefix_fault,
)
from xformer_kit.objective.cross_entropy import CrossEntropy, States, labelled
from xformer_kit.registry import at_least, at_most
from xformer_kit.tensors.tokens import Tokens

START, END = "<s>", "</s>"


class SourceTarget(CrossEntropy):
    """Base: a target is predicted from its source."""

    needs: tuple[tuple[str, ...], ...] = (("encoder", "decoder"), ("decoder",))
    laws = ("causality", "cache", "padding")
    predicted = ("tokens", "target")
    specials: tuple[str, ...] = (START, END)

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            return
        encoder = context.stack == "encoder"
        if context.mask.sees_prefix and (encoder or context.has_source):
            reader = "an encoder" if encoder else "a decoder with an encoder"
            mask = "full" if encoder else "causal"
            yield prefix_fault(context, reader, f"mask={mask}, or only a decoder")
        elif context.mask.sees_future and not encoder:
            masks = ["causal"] if context.has_source else ["prefix", "causal"]
            yield future_fault(context, "the decoder", causal_mask_fixes(context, *masks))

    def pair(self, source: Any, target: Any) -> Example:
        """Returns the example of a source and a target: arrays of ids (s,), (t,)."""
        start, end = self.tokenizer.special(START), self.tokenizer.special(END)
        of_source = self.source_tokenizer or self.tokenizer
        before, after = of_source.around or ([], [of_source.special(END)])
        source = np.concatenate([before, source, after]).astype(np.int64)
        target = np.concatenate([[start], target, [end]]).astype(np.int64)
        if self.stacks != ("decoder",):
            return {"source": source, "target": target}
        prefix = np.arange(len(source) + len(target)) <= len(source)
        tokens = np.concatenate([source, target])
        return {"tokens": tokens, "tokens.prefix": prefix, "labels": np.where(prefix, -1, tokens)}

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        ids = blank_ids(rows, length + 1, device)
        if self.stacks != ("decoder",):
            source = blank_ids(rows, length, device)
            return {"source": Tokens(ids=source), "target": Tokens(ids=ids)}
        return {"tokens": Tokens(ids=ids, prefix=ids.bool()), "labels": ids}

    def count_predictions(self, batch: Batch) -> Tensor:
        target = batch["target"].targets(1) if "source" in batch else batch["labels"][:, 1:]
        return (target >= 0).sum()

    def states(self, model: Any, batch: Batch) -> States:
        if "source" in batch:
            tokens, target = batch["target"].shifted()
            hidden, report = model.hidden(tokens, source=batch["source"])
            return hidden, target, report
        hidden, report = model.hidden(batch["tokens"].shifted()[0])
        return *labelled(hidden, batch["labels"][:, 1:]), report


@OBJECTIVES.register(
    "seq2seq", also_called=("sequence_to_sequence", "s2s"), similar=("translation", "transduction")
)
@dataclass(kw_only=True, eq=False)
class Seq2Seq(SourceTarget):
    """-sum log p(target token | source, the target before it) in nats (Sutskever et al., 2014,
    arXiv:1409.3215, eq. 1).

    With two stacks the encoder reads `source </s>`; the decoder reads `<s> target` and predicts
    `target </s>` (teacher forcing). A model with only a decoder reads `source </s> <s> target` as
    one stream, with mask=prefix for the prefix up to and including `<s>` (Raffel et al., 2020, JMLR
    21(140), section 3.2.1), and predicts the same.
    """

    reads = ("pairs",)
    outputs = ("logits", "texts")
    text_use = "answers"
    masks = {"decoder": "prefix"}

    decoded: int = 256  # validation examples that are answered and compared at each validation
    test: bool = True  # whether all of the test split is answered and compared at the end
    beam: int = 1  # beams of a search for answers; 1: greedy

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, decoded=0, beam=1)
        yield from at_most(options, beam=1000)

    def example(self, example: Example, draw: torch.Generator) -> Example:
        """{source, target} without special tokens -> {source, target}, or {tokens, tokens.prefix,
        labels} for a model with only a decoder.
        """
        return self.pair(example["source"], example["target"])
