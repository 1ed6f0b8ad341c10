"""Base of attentions that mix all tokens of a text at once, without a score for each pair of
tokens.

Each text is moved to its own row, from its first token on, so that padding and other texts of a row
do not change the result.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.attention import Attention, Cache
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Context, Fault, alternatives
from xformer_kit.tensors.tokens import AttentionContext, Tokens


class TextRows(NamedTuple):
    """Where the texts of a batch go if each has its own row, starting at slot 0."""

    # (rows,): tokens of each; None: the rows are those of the batch, without padding
    length: Tensor | None
    real: Tensor | None  # (rows, n)
    # (b * t,): row * n + slot of every token; padding goes to one place after all rows
    place: Tensor | None
    texts: int  # rows for each row of the batch
    n: int  # slots of a row
    documents: Tensor | None  # (b, texts): the number of each text's document

    def to_rows(self, x: Tensor) -> Tensor:
        """(b, t, c) -> (rows, n, c), zero after the end of a text."""
        if self.place is None:
            return x
        empty = x.new_zeros(len(x) * self.texts * self.n + 1, x.shape[-1])
        return empty.index_copy(0, self.place, x.flatten(0, 1))[:-1].unflatten(0, (-1, self.n))

    def from_rows(self, y: Tensor, batch: int) -> Tensor:
        """(rows, n, c) -> (b, t, c), zero on padding."""
        if self.place is None:
            return y
        padded = F.pad(y.flatten(0, 1), (0, 0, 0, 1))
        return padded.index_select(0, self.place).unflatten(0, (batch, -1))


def text_rows(tokens: Tokens, batch: int) -> TextRows:
    """Returns the rows of a batch's texts; without padding and documents they are the batch's."""
    t, real, document = tokens.length, tokens.real, tokens.document
    if real is None and document is None:
        return TextRows(None, None, None, 1, t, None)
    real = torch.ones_like(document, dtype=torch.bool) if real is None else real
    real, texts = real.expand(batch, -1), 1
    text = torch.zeros_like(real, dtype=torch.long)
    if document is not None:
        document = document.expand(batch, -1)
        text = F.pad(document[:, 1:] != document[:, :-1], (1, 0)).cumsum(-1)
        texts = int(text.max()) + 1
    own = text[:, None] == torch.arange(texts, device=text.device)[:, None]
    own = own & real[:, None]  # (b, texts, t)
    length, slot = own.sum(-1), (own.cumsum(-1) - 1).gather(1, text[:, None])[:, 0]
    # Read from the device only for packed texts.
    n = t if document is None else max(1, int(length.max()))
    row = torch.arange(batch, device=text.device)[:, None] * texts + text
    place = torch.where(real, row * n + slot, batch * texts * n)
    numbers = None
    if document is not None:
        numbers = document.new_zeros(batch, texts).scatter(1, text, document)
    inside = torch.arange(n, device=text.device) < length.flatten()[:, None]
    return TextRows(length.flatten(), inside, place.flatten(), texts, n, numbers)


def all_pairs_context(
    context: AttentionContext,
    kernel: Kernel,
    q: Tensor,
    k: Tensor,
    document: Tensor | None = None,
    real: Tensor | None = None,
) -> AttentionContext:
    """Returns the context of attention from q (b, h, t, d) to all of k (b, h, s, d), except keys
    that are not `real` or of another `document`, (b, s).
    """
    queries, slot = (torch.arange(x.shape[2], device=q.device)[None] for x in (q, k))
    query_document = None if document is None else context.query.document
    query = Tokens(slot=queries, position=queries, document=query_document)
    key = Tokens(slot=slot, position=slot, document=document, real=real)
    pair_context = context._replace(query=query, key=key, cross=True)
    return pair_context._replace(prepared=kernel.prepare(pair_context, q.shape[1], False, q.dtype))


# The law that all of these attentions break.
BREAKS = {
    "device with documents": (
        "the texts of a row are taken apart, and only the device has their number and lengths"
    )
}


class EmptyCache(Cache):
    """A cache that stores nothing: with a mask that sees the future there is only one call."""

    tensors = ()

    def append(self, *new):
        return new

    def select(self, rows):
        pass

    def rewind(self, n):
        pass


class WholeTextAttention(Attention):
    """Base of attentions that mix all tokens of a text, so that no mask can hide some of them.

    enters: the supported places of a position. cross_reason: why cross attention is not supported,
    or None. head_dim: channels of the values of a head, if it has values.
    """

    enters: tuple[str, ...] = ("embed",)
    cross_reason: str | None = None
    head_dim: int

    @classmethod
    def traits(cls, options, dim):
        return replace(super().traits(options, dim), maskable=False)

    @classmethod
    def cannot(cls, options, context):
        name, position, mask = (context.names[kind] for kind in ("attn", "position", "mask"))
        if context.cross and cls.cross_reason:
            yield Fault(
                "", f"{name} {cls.cross_reason}", fix="Choose model.decoder.cross.name=multi_head."
            )
            return
        reasons, fixes = [], []
        if context.mask.band != (math.inf, math.inf):
            reasons.append(f"{name} mixes all tokens of a text, and mask '{mask}' hides some")
            fixes = _full_mask_fixes(context)
        if set(context.position.enters) - set(cls.enters):
            reasons.append(
                f"{name} has no score of two tokens, into which position '{position}' enters"
            )
            positions = ["learned", "sinusoidal", "none"]
            if "rotate" in cls.enters:
                positions = ["rotary", "learned", "none"]
            fixes = [f"{fix} position=learned" for fix in fixes] or [
                f"position={other}" for other in positions
            ]
        if reasons:
            yield Fault("", "; ".join(reasons), fix=f"Choose {alternatives(fixes)}.")

    def attention_weights(self, calls, probe):
        return probe(self.head_dim)

    def cache(self, rows, length) -> Cache:
        return EmptyCache()


def _full_mask_fixes(context: Context) -> list[str]:
    """Fixes that let the tokens of a stack see their whole text."""
    name = context.names["attn"]
    if context.stack == "encoder":
        return ["mask=full"]
    if context.has_source:
        return [f"attn=multi_head model.encoder.attn={name}"]
    return ["task=masked_language_modeling mask=full"]
