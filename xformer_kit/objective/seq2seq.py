"""Predict a target from its source."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from xformer_kit.model.tokens import Tokens
from xformer_kit.objective import OBJECTIVES, hiding
from xformer_kit.objective.cross_entropy import CrossEntropy
from xformer_kit.registry import Context, at_least

START, END = "<s>", "</s>"


@OBJECTIVES.register(
    "seq2seq", also_called=("sequence_to_sequence", "translation", "transduction", "s2s")
)
class Seq2Seq(CrossEntropy):
    """-sum log p(target token | source, the target before it) in nats (Sutskever et al., 2014,
    arXiv:1409.3215, eq. 1).

    Two stacks: the encoder reads `source </s>`, the decoder `<s> target` and predicts `target
    </s>`, always from the true tokens before (teacher forcing). A decoder alone reads `source </s>
    <s> target` as one stream, whose prefix, up to and with `<s>`, mask=prefix lets it see whole
    (Raffel et al., 2020, JMLR 21(140), section 3.2.1), and predicts the same.
    """

    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("encoder", "decoder"), ("decoder",))
    reads: ClassVar[tuple[str, ...]] = ("pairs",)
    laws = ("causality", "cache", "padding")
    speaks: ClassVar[str] = "answers"
    masks: ClassVar[Mapping[str, str]] = {"decoder": "prefix"}
    specials: tuple[str, ...] = (START, END)

    def __init__(
        self,
        *,
        # share of the target that is spread over the vocabulary, in training
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,  # coefficient of log^2 Z, in training; PaLM has 1e-4
        decoded: int = 256,  # validation examples that are answered and compared at each validation
        test: bool = True,  # whether all of the test split is answered and compared at the end
        beam: int = 1,  # beams of a search for answers; 1: greedy
    ):
        super().__init__(label_smoothing, z_loss)
        self.decoded = decoded
        self.test = test
        self.beam = beam

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, decoded=0, beam=1)
        if (options.beam or 0) > 1000:
            yield (
                "beam: must be at most 1,000, each of which is a text to read; got"
                f" {options.beam:,}. Try 4 to 10."
            )

    @classmethod
    def cannot(cls, context: Context) -> str | None:
        if context.cross:
            return None
        mask, name, encoder = (
            context.mask,
            context.names["mask"],
            context.stack == "encoder",
        )
        if mask.sees_prefix and (encoder or context.has_source):
            return (
                f"mask '{name}' is for a prefix, which"
                f" {'an encoder' if encoder else 'a decoder beside an encoder'} does not have. Use"
                f" mask={'full' if encoder else 'causal'}, or a decoder alone."
            )
        if mask.sees_future and not encoder:
            return (
                f"mask '{name}' sees the future, so the decoder would read the token that it has to"
                " predict. Use"
                f" {hiding(context, *(['prefix'] * (not context.has_source)), 'causal')}."
            )
        return None

    def example(self, example: Mapping[str, Any], draw: torch.Generator) -> Mapping[str, Any]:
        """{source, target} without special tokens -> {source, target}, or for a decoder alone
        {tokens, tokens.prefix, labels}.
        """
        return self.pair(example["source"], example["target"])

    def pair(self, source: Any, target: Any) -> dict[str, np.ndarray]:
        """What the model reads of a source and a target: arrays of ids (s,), (t,)."""
        start, end = self.tokenizer.special(START), self.tokenizer.special(END)
        source = np.append(source, (self.source_tokenizer or self.tokenizer).special(END)).astype(
            np.int64
        )
        target = np.concatenate([[start], target, [end]]).astype(np.int64)
        if self.stacks != ("decoder",):
            return {"source": source, "target": target}
        prefix = np.arange(len(source) + len(target)) <= len(source)
        tokens = np.concatenate([source, target])
        return {"tokens": tokens, "tokens.prefix": prefix, "labels": np.where(prefix, -1, tokens)}

    def size(self, batch: Mapping[str, Any]) -> int | Tensor:
        read = [
            stream if name == "source" else _but_last(stream)
            for name, stream in batch.items()
            if name != "labels"
        ]
        return sum(t.ids.numel() if t.real is None else t.real.sum() for t in read)

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        def zeros(width: int) -> Tensor:
            return torch.zeros(rows, width, dtype=torch.int64, device=device)

        if self.stacks != ("decoder",):
            return {"source": Tokens(ids=zeros(length)), "target": Tokens(ids=zeros(length + 1))}
        ids = zeros(length + 1)
        return {"tokens": Tokens(ids=ids, prefix=ids.bool()), "labels": ids}

    def loss(
        self, model: Any, batch: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        if "source" in batch:
            seen, target = batch["target"].shifted()
            hidden, report = model.hidden(seen, source=batch["source"])
            return self.nats(model, hidden, target), (target >= 0).sum(), report
        hidden, report = model.hidden(batch["tokens"].shifted()[0])
        return *self.asked(model, hidden, batch["labels"][:, 1:]), report


def _but_last(tokens: Tokens) -> Tokens:
    """As many tokens as are read for `tokens`, each of which but the first is predicted."""
    return tokens.map(lambda field: field[:, 1:])
