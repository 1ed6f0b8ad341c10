"""Tokens describe a batch of sequences; an AttentionContext is what the attentions of one call of a
stack receive.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.registry import config_error


class Tokens(NamedTuple):
    """One batch of sequences; every field is (b, t), or (1, t) where all rows agree, or None.

    A NamedTuple, so that batches, compilation, checkpointing and sharding traverse it.
    """

    ids: Tensor | None = None  # token ids
    slot: Tensor | None = None  # order of arrival: causality, windows and caches use it
    # where encodings place a token: restarts with a document, counts real tokens
    position: Tensor | None = None
    # packed texts: tokens of different documents do not see each other
    document: Tensor | None = None
    segment: Tensor | None = None  # token type
    prefix: Tensor | None = None  # True where a token belongs to a prefix that is seen whole
    real: Tensor | None = None  # False on padding

    @property
    def length(self) -> int:
        return next(field for field in self if field is not None).shape[-1]

    def map(self, change) -> "Tokens":
        """The same change on every field that is there."""
        return Tokens(*(None if field is None else change(field) for field in self))

    def select(self, rows: Tensor) -> "Tokens":
        """These rows of the batch; a field that all rows share stays."""
        return self.map(lambda field: field if field.shape[0] == 1 else field[rows])

    def shifted(self) -> tuple["Tokens", Tensor]:
        """The tokens but the last, and the ids that each of them predicts: (b, t + 1) -> Tokens of
        (b, t), (b, t).

        A target that is padding or starts another document is -1: nothing is to be predicted there.
        """
        return self.map(lambda field: field[:, :-1]), self.ahead(1)

    def ahead(self, n: int) -> Tensor:
        """For each of the tokens but the last the id of the one that stands `n` behind it: (b, t +
        1) -> (b, t).

        -1 where that is padding, belongs to another document, or lies beyond the end of the row.
        """
        here, there = self.map(lambda field: field[:, :-n]), self.map(lambda field: field[:, n:])
        target = there.ids
        if there.real is not None:
            target = target.masked_fill(~there.real, -1)
        if there.document is not None:
            target = target.masked_fill(there.document != here.document, -1)
        return target if n == 1 else F.pad(target, (0, self.length - 1 - target.shape[1]), value=-1)

    def placed(self, past: "Tokens | None" = None) -> "Tokens":
        """With slot and position filled in: slots go on from `past`; positions count real tokens,
        within a document.

        Behind a past with documents, tokens without one belong to its last.
        """
        tokens, start = self, 0 if past is None else past.length
        if self.slot is None:
            field = self.ids if self.ids is not None else self.real
            tokens = tokens._replace(
                slot=torch.arange(start, start + field.shape[-1], device=field.device)[None]
            )
        if past is not None and past.document is not None and self.document is None:
            tokens = tokens._replace(document=past.document[:, -1:].expand(-1, tokens.length))
        if self.position is not None:
            return tokens
        if self.real is None and self.document is None:
            if past is None or (past.real is None and past.document is None):
                return tokens._replace(position=tokens.slot)
            return tokens._replace(
                position=past.position[:, -1:] + 1 + tokens.slot - tokens.slot[:, :1]
            )
        whole = tokens if past is None else past._replace(position=None).then(tokens)
        return tokens._replace(position=_count(whole)[:, start:])

    def then(self, more: "Tokens") -> "Tokens":
        """These tokens followed by `more`; fields that one of them lacks are filled with their
        neutral value.
        """

        def join(name: str, a: Tensor | None, b: Tensor | None) -> Tensor | None:
            if a is None and b is None:
                return None
            rows = max(field.shape[0] for field in (a, b) if field is not None)
            a, b = (
                _neutral(name, rows, side, like) if f is None else f
                for f, side, like in ((a, self, b), (b, more, a))
            )
            rows = max(a.shape[0], b.shape[0])
            return torch.cat([a.expand(rows, -1), b.expand(rows, -1)], -1)

        one = self.position is self.slot and more.position is more.slot  # then one join serves both
        pairs = zip(Tokens._fields, self, more, strict=True)
        whole = Tokens(
            *(None if one and name == "position" else join(name, a, b) for name, a, b in pairs)
        )
        return whole._replace(position=whole.slot) if one else whole

    def as_query(self) -> "Tokens":
        """Fields as (b, 1, q, 1), so that a mask or a bias broadcasts to (b, h, q, k)."""
        return self.map(lambda field: field[:, None, :, None])

    def as_key(self) -> "Tokens":
        """Fields as (b, 1, 1, k)."""
        return self.map(lambda field: field[:, None, None, :])


UNKNOWN = Tokens()  # nothing is known of the tokens: no padding, no documents


def _count(tokens: Tokens) -> Tensor:
    """How many real tokens of its document stand before each token, (b, t)."""
    real, document = tokens.real, tokens.document
    count = tokens.slot if real is None else real.long().cumsum(-1) - 1
    if document is not None:
        start = torch.ones_like(document, dtype=torch.bool)
        start[:, 1:] = document[:, 1:] != document[:, :-1]
        count = count - torch.where(start, count, 0).cummax(-1).values
    return count.clamp(min=0)


def _neutral(name: str, rows: int, tokens: Tokens, like: Tensor) -> Tensor:
    return torch.full((rows, tokens.length), name == "real", dtype=like.dtype, device=like.device)


class AttentionContext(NamedTuple):
    """What the attentions of one call of a stack receive, once per call for each mask and position
    that the stack uses.
    """

    query: Tokens
    key: Tokens
    mask: Any  # a Mask
    position: Any  # a Position with the tables of this forward
    depth: int = 0  # index of the call: a layer that is shared is called several times
    # values that cross layers: a layer adds to it, later layers read
    memo: dict[str, Tensor] | None = None
    prepared: Any = None  # what the kernel made of mask, padding and position, once for all layers
    scored: bool = False  # the position computes the scores
    reads: bool = False  # the position reads what an attention is given
    added: Any = None  # what it adds to scores then, (b, h, q, k)
    # factor on scores that the position asks of an attention in which it turns some channels alone
    gain: float = 1.0
    cross: bool = False  # keys are another stack's: their slots say nothing about the queries'
    # changes of values by extras, (values, input of the attention) -> values
    values: Sequence[Callable[[Tensor, Tensor], Tensor]] = ()

    def visible(self, heads: int) -> Tensor | None:
        """True where the query sees the key, broadcasting to (b, h, q, k): mask, padding and
        documents. None: all do.
        """
        return self.seen(heads, self.covers(self.mask.band()))

    def seen(self, heads: int, covered: bool) -> Tensor | None:
        """The same where it is known whether the mask shows all."""
        query, key = self.query.as_query(), self.key.as_key()
        seen = None
        if not covered:
            head = torch.arange(heads, device=self.query.slot.device).view(1, -1, 1, 1)
            seen = self.mask.allows(query, key, head)
        if key.real is not None:
            seen = key.real if seen is None else seen & key.real
        if key.document is not None and query.document is not None:
            same = query.document == key.document
            seen = same if seen is None else seen & same
        return seen

    def part(self, queries: slice, keys: slice) -> "AttentionContext":
        """Some of the queries before some of the keys. Where they stand to each other their slots
        say, not their number.
        """
        query, key = (
            self.query.map(lambda field: field[:, queries]),
            self.key.map(lambda field: field[:, keys]),
        )
        return self._replace(query=query, key=key)

    def covers(self, band: tuple[float, float] | None) -> bool:
        """Whether a band lets every query see every key: slots of keys run from 0 to their
        number.
        """
        if band is None:
            return False
        queries, keys = self.query.length, self.key.length
        if self.cross:  # a query may stand anywhere from slot 0 on
            return math.isinf(band[0]) and band[1] >= keys - 1
        first = keys - queries  # slot of the first query: queries are the last of the keys
        return band[0] >= keys - 1 and band[1] >= keys - 1 - first


def checked_ids(name: str, ids: Any, **fields: Tensor | None) -> Tensor:
    """ids (b, t) of any integer type as int64. Raises ConfigError for what are none, and for a
    field that has no value for each of them.
    """
    if not isinstance(ids, Tensor):
        raise config_error(
            name,
            "must be a tensor (batch, tokens)",
            got=type(ids).__name__,
            fix="Try torch.tensor([[1, 2]]).",
        )
    number = ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool
    if ids.ndim != 2 or not ids.numel() or number:
        raise config_error(
            name,
            "must be ids (batch, tokens) with at least one token",
            got=f"{tuple(ids.shape)} of {ids.dtype}",
        )
    rows, length = ids.shape
    for key, field in fields.items():
        if field is not None and (
            field.ndim != 2 or field.shape[0] not in (1, rows) or field.shape[1] != length
        ):
            raise config_error(
                key,
                f"must have a value for each token, ({rows}, {length})",
                got=f"{tuple(field.shape)}",
            )
    return ids.long()
