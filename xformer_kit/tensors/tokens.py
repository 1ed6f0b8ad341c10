"""Tokens: a batch of sequences. AttentionContext: the inputs of an attention besides its queries,
keys and values.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.tensors.cache import Cache

T = TypeVar("T", bound=NamedTuple)


class Tokens(NamedTuple):
    """A batch of sequences. Each field is (b, t), or (1, t) if all rows are equal, or None.

    It is a NamedTuple so that collation, torch.compile, checkpointing and FSDP can traverse it.
    """

    ids: Tensor | None = None  # token ids
    # index in the row, for causality, windows and caches; there is no padding between real tokens
    # where a mask compares distances of slots
    slot: Tensor | None = None
    # index for position encodings: counts real tokens and restarts with each document
    position: Tensor | None = None
    # number of the document in a packed row; tokens attend only within their document, which is a
    # contiguous range of tokens
    document: Tensor | None = None
    segment: Tensor | None = None  # token type
    prefix: Tensor | None = None  # True on the tokens of a prefix (mask=prefix)
    real: Tensor | None = None  # False on padding

    @property
    def length(self) -> int:
        """Number of tokens in a row."""
        for field in self:
            if field is not None:
                return field.shape[-1]
        raise ValueError("Tokens without any field have no length.")

    def map(self, change) -> "Tokens":
        """Applies a function to every field that is not None."""
        return Tokens(*(None if field is None else change(field) for field in self))

    def select(self, rows: Tensor) -> "Tokens":
        """Returns these rows of the batch; fields (1, t) are unchanged."""
        return self.map(lambda field: field if field.shape[0] == 1 else field[rows])

    def reordered(self, order: Tensor) -> "Tokens":
        """Returns the tokens of each row in the order of these indices (b, t), without slots."""
        tokens = self._replace(slot=None)
        return tokens.map(lambda field: torch.take_along_dim(field, order, -1))

    def document_runs(self) -> Tensor:
        """Returns the number of documents that have begun after the row's first, up to each token,
        (b, t). A document is a contiguous range of tokens: a number that returns after another one
        is another document. Padding begins none.
        """
        document: Tensor = self.document  # type: ignore[assignment]
        if self.real is not None:  # padding has the document of the last real token before it
            rows = max(len(document), len(self.real))
            document, real = document.expand(rows, -1), self.real.expand(rows, -1)
            at = torch.arange(real.shape[1], device=real.device).expand_as(real)
            first = at.masked_fill(~real, real.shape[1] - 1).amin(-1, keepdim=True)
            last = at.masked_fill(~real, -1).cummax(-1).values
            document = document.gather(1, torch.maximum(last, first))
        return F.pad(document[:, 1:] != document[:, :-1], (1, 0)).cumsum(-1)

    def shifted(self) -> tuple["Tokens", Tensor]:
        """Returns inputs and targets of next-token prediction: all tokens but the last, and the
        ids that follow them. (b, t + 1) -> Tokens of (b, t), (b, t).

        A target is -1, which the loss ignores, if it is padding or starts another document.
        """
        return self.map(lambda field: field[:, :-1]), self.targets(1)

    def targets(self, n: int) -> Tensor:
        """Returns, for all tokens but the last, the id `n` real tokens later: (b, t + 1) -> (b, t).

        -1 if that token belongs to another document or is after the end of the row, and for
        padding.
        """
        order = order_without_gaps(self.real)
        tokens = self if order is None else self.reordered(order)
        target = tokens.ids[:, n:]  # type: ignore[index]
        if tokens.real is not None:
            target = target.masked_fill(~(tokens.real[:, n:] & tokens.real[:, :-n]), -1)
        if tokens.document is not None:
            document = tokens.document_runs()
            target = target.masked_fill(document[:, n:] != document[:, :-n], -1)
        if order is not None:
            padded = F.pad(target, (0, self.length - target.shape[1]), value=-1)
            return torch.take_along_dim(padded, order.argsort(-1), -1)[:, :-1]
        return target if n == 1 else F.pad(target, (0, self.length - 1 - target.shape[1]), value=-1)

    def with_positions(self, past: "Tokens | None" = None) -> "Tokens":
        """Returns the tokens with `slot` and `position`, if they are None. Slots continue after
        those of `past`; positions count the real tokens of a document (`document_runs`), and
        continue after that of its last real token in `past`.

        Tokens without `document` after a past with documents belong to its last document.
        """
        tokens, start = self, 0 if past is None else past.length
        new = self.slot is None and self._counts_slots() and self.ids is not None
        if new and (past is None or past._counts_slots()):
            slot = slots(start, self.ids.shape[-1], self.ids.device)
            return Tokens(self.ids, slot, slot, None, self.segment, self.prefix)
        if self.slot is None:
            field: Any = self.ids if self.ids is not None else self.real
            tokens = tokens._replace(slot=slots(start, field.shape[-1], field.device))
        if past is not None and past.document is not None and self.document is None:
            last = _at_last_real(past, past.document)
            tokens = tokens._replace(document=last.expand(-1, tokens.length))
        if self.position is not None:
            return tokens
        counted = past is None or past.position is past.slot
        if counted and self.real is None and tokens.document is None:
            return tokens._replace(position=tokens.slot)
        if past is None:
            return tokens._replace(position=_count_positions(tokens))
        return tokens._replace(position=_continued_positions(past, tokens))

    def _counts_slots(self) -> bool:
        """Whether positions, if they are not given, are slots."""
        return self.real is None and self.document is None and self.position is self.slot

    def after_front(self, count: int) -> "Tokens":
        """The tokens with slots after those of `count` tokens in front of the row."""
        slot: Tensor = self.slot  # type: ignore[assignment]
        return self._replace(slot=slot + count)

    def with_front(self, count: int) -> "Tokens":
        """The tokens of a text with `count` more in front of it, which have the position of the
        first real token, the id -1 and no other field; slots count all of them.
        """
        first: Tensor = self.position[:, :1]  # type: ignore[index]
        if self.real is not None:
            at = self.real.int().argmax(-1, keepdim=True)
            first = torch.take_along_dim(self.position, at, -1)
        slot = torch.arange(count, device=first.device)[None]
        position = first.expand(-1, count)
        front = Tokens(ids=torch.full_like(position, -1), slot=slot, position=position)
        return front.concat(self.after_front(count))

    def concat(self, more: "Tokens") -> "Tokens":
        """Concatenates the tokens with `more` along the rows. A field that only one of them has is
        filled with its neutral value in the other: True for `real`, else 0.
        """

        # One tensor is both slot and position: it is concatenated once.
        same = self.position is self.slot and more.position is more.slot
        if same and (rows := self._rows_of_ids()) and rows == more._rows_of_ids():
            slot = torch.cat([self.slot, more.slot], -1)
            return Tokens(torch.cat([self.ids, more.ids], -1), slot, slot)
        joined: dict[str, Tensor] = {}
        for name, *fields in zip(Tokens._fields, self, more, strict=True):
            like = next((field for field in fields if field is not None), None)
            if like is None or (same and name == "position"):
                continue
            a, b = (
                torch.full((1, side.length), name == "real", dtype=like.dtype, device=like.device)
                if field is None
                else field
                for field, side in zip(fields, (self, more), strict=True)
            )
            rows = max(len(a), len(b))
            joined[name] = torch.cat([a.expand(rows, -1), b.expand(rows, -1)], -1)
        return Tokens(**joined, **({"position": joined.get("slot")} if same else {}))

    def _rows_of_ids(self) -> int:
        """The number of rows with ids, slots that all share, and only positions besides; or 0."""
        ids, slot = self[:2]
        plain = self[3:] == NO_OTHER_FIELDS and ids is not None and slot is not None
        return ids.shape[0] if plain and slot.shape[0] == 1 else 0

    def as_query(self) -> "Tokens":
        """Fields as (b, 1, q, 1), so that a mask or a bias broadcasts to (b, h, q, k)."""
        return self.map(lambda field: field[:, None, :, None])

    def as_key(self) -> "Tokens":
        """Fields as (b, 1, 1, k)."""
        return self.map(lambda field: field[:, None, None, :])


def with_fields(item: T, **fields: Any) -> T:
    """Returns a NamedTuple with other values of some fields, also within a compiled block: what
    `_replace` returns there is not rebuilt after a graph break by torch 2.11.
    """
    values = zip(item._fields, item, strict=True)
    return type(item)(*(fields.get(name, value) for name, value in values))


def slots(start: int, length: int, device: torch.device) -> Tensor:
    """The slots of tokens after `start` others, (1, length)."""
    if length == 1:  # a token in generation: one operation instead of two
        return torch.full((1, 1), start, device=device)
    return torch.arange(start, start + length, device=device)[None]


NO_OTHER_FIELDS = (None,) * 4  # document, segment, prefix and real
UNKNOWN = Tokens()  # no fields: neither padding nor documents


def _count_positions(tokens: Tokens) -> Tensor:
    """The number of real tokens before each token in its document, (b, t)."""
    count = tokens.slot if tokens.real is None else tokens.real.long().cumsum(-1) - 1
    if tokens.document is not None:
        runs = tokens.document_runs()
        starts = F.pad(runs[:, 1:] != runs[:, :-1], (1, 0), value=True)
        count = count - torch.where(starts, count, 0).cummax(-1).values
    return count.clamp(min=0)


def _continued_positions(past: Tokens, new: Tokens) -> Tensor:
    """The positions of new tokens: counted ones, and in the last document of `past` as many more as
    the position of its last real token, which may have been given, is above the counted one.
    """
    tokens = past._replace(position=None).concat(new)
    count = _count_positions(tokens)
    more = _at_last_real(past, past.position - count[:, : past.length])
    if past.real is not None:
        more = more * past.real.any(-1, keepdim=True)
    if tokens.document is not None:
        runs = tokens.document_runs()
        more = more * (runs == _at_last_real(past, runs[:, : past.length]))[:, past.length :]
    return count[:, past.length :] + more


def _at_last_real(tokens: Tokens, field: Any) -> Tensor:
    """The value (b, 1) of a field at the last real token; at the first one if none is real."""
    if tokens.real is None:
        return field[:, -1:]
    at = torch.arange(tokens.length, device=field.device) * tokens.real
    return torch.take_along_dim(field, at.amax(-1, keepdim=True), -1)


def has_gap(real: Tensor) -> bool:
    """Whether there is padding between two real tokens of a row of `real` (b, t); reads values."""
    begun = real.cumsum(-1)[:, :-1] > 0
    return bool((begun & ~real[:, :-1] & real[:, 1:]).any())


def order_without_gaps(real: Tensor | None) -> Tensor | None:
    """Indices (b, t) that move padding between the real tokens of a row after them, and leave other
    tokens where they are. None if there is no such padding; values are read only on a CPU.
    """
    if real is None:
        return None
    readable = type(real) is Tensor and real.is_cpu and not torch.compiler.is_compiling()
    if readable and not has_gap(real):
        return None
    begun = real.cumsum(-1) > 0
    # 0 before the first real token, 1 for real ones, 2 for padding after it
    return (begun.long() * 2 - real.long()).argsort(dim=-1, stable=True)


def document_segments(query: Tokens, key: Tokens) -> Tensor | None:
    """The number of documents that have begun up to each of the tokens `query`, the last of `key`,
    since the token before them, (b or 1, t); None without documents. Documents are counted
    (`Tokens.document_runs`).
    """
    count = key.document
    if count is None or query.document is None:
        return None
    past = key.length - query.length
    return count[:, past:] - count[:, past - 1 : past] if past else count


class FFNContext(NamedTuple):
    """The inputs of a feed-forward network besides x (b, t, dim)."""

    tokens: Tokens = UNKNOWN  # of x, (b, t)
    key: Tokens = UNKNOWN  # the same after those that are cached
    cache: Cache | None = None  # what `FFN.cache` returned, in generation
    # what extras make of (name of a linear map of x, its output)
    projected: Callable[[str, Tensor], Tensor] | None = None


class AttentionContext(NamedTuple):
    """The inputs of an attention besides its queries, keys and values. A stack creates one per
    forward for each of its attention groups.
    """

    query: Tokens  # of the queries, (b, t)
    key: Tokens  # of the keys, with those that are cached, (b, s)
    mask: Any  # a Mask
    position: Any  # a Position with the tables of this forward
    depth: int = 0  # index of the layer, in a block
    # tensors that attentions pass to later layers, by name; changed in place
    cross_layer_state: dict[str, Tensor] | None = None
    prepared: Any = None  # what `Kernel.prepare` returned, for all layers
    scored: bool = False  # whether the position computes the scores
    position_reads_input: bool = False  # whether `Position.read` is called before an attention
    added_scores: Any = None  # what `Position.read` returned, added to the scores, (b, h, q, k)
    # factor on the scores of an attention in which the position rotates only some channels
    gain: float = 1.0
    cross: bool = False  # whether keys are another stack's, so that slots cannot be compared
    # what extras make of (values, input of the attention); None without extras
    values: Callable[[Tensor, Tensor], Tensor] | None = None
    projected: Callable[[str, Tensor], Tensor] | None = None  # as in FFNContext

    def in_block(
        self, depth: int, cross_layer_state: dict[str, Tensor], values: Any, projected: Any
    ) -> "AttentionContext":
        """The context with these fields of one call of a block."""
        # `_replace` takes 20 calls.
        return AttentionContext(*self[:4], depth, cross_layer_state, *self[6:12], values, projected)

    @property
    def rows(self) -> int:
        """Number of sequences in the batch; 1 if all are equal."""
        return max(field.shape[0] for field in (*self.query, *self.key) if field is not None)

    def visible(self, heads: int) -> Tensor | None:
        """The attention mask from mask, padding and documents: True where the query may attend to
        the key; broadcasts to (b, h, q, k). None if every query may attend to every key.
        """
        return self.visible_pairs(heads, self.covers(self.mask.band()))

    def visible_pairs(self, heads: int, covered: bool) -> Tensor | None:
        """The same; `covered`: whether `mask` allows all pairs, and need not be evaluated."""
        query, key = self.query.as_query(), self.key.as_key()
        allowed = None
        if not covered:
            head = torch.arange(heads, device=self.query.slot.device).view(1, -1, 1, 1)
            allowed = self.mask.allows(query, key, head)
        if key.real is not None:
            allowed = key.real if allowed is None else allowed & key.real
        if key.document is not None and query.document is not None:
            same = query.document == key.document
            allowed = same if allowed is None else allowed & same
        return allowed

    def narrow(self, queries: slice, keys: slice) -> "AttentionContext":
        """The context of some of the queries and some of the keys. Their slots are kept, so that
        distances are unchanged.
        """
        query = self.query.map(lambda field: field[:, queries])
        return self._replace(query=query, key=self.key.map(lambda field: field[:, keys]))

    def covers(self, band: tuple[float, float] | None) -> bool:
        """Whether a band (left, right) of distances lets every query attend to every key. The
        slots of keys are 0, 1, ..., and the queries are the last of the keys.
        """
        if band is None:
            return False
        queries, keys = self.query.length, self.key.length
        if self.cross:  # the slot of a query may be any
            return math.isinf(band[0]) and band[1] >= keys - 1
        first = keys - queries  # slot of the first query
        return band[0] >= keys - 1 and band[1] >= keys - 1 - first


def after_extras(
    context: FFNContext | AttentionContext, names: Sequence[str], maps: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Outputs (b, t, channels) of linear maps with these names, as the extras of a block change
    them.
    """
    if context.projected is None:
        return maps
    return [context.projected(name, y) for name, y in zip(names, maps, strict=True)]


def expand_heads(x: Tensor, heads: int) -> Tensor:
    """Repeats each key head for its group of query heads: (b, kv, t, d) -> (b, heads, t, d)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def scaled_products(q: Tensor, k: Tensor, scale: float | Tensor) -> Tensor:
    """q k^T * scale: (b, h, t, d) and (b, kv, s, d) -> (b, h, t, s). Queries are scaled before the
    product, which may overflow in fp16 where the result does not.
    """
    return q * scale @ expand_heads(k, q.shape[1]).mT


def masked_weights(
    scores: Tensor, seen: Tensor | None, weights: Callable[[Tensor], Tensor]
) -> Tensor:
    """weights(scores) with scores (b, h, t, s) of -inf where `seen`, which broadcasts to them, is
    False, and 0 in rows where all of it is; None: all are seen.
    """
    if seen is None:
        return weights(scores)
    # A row without visible keys is not masked, so that its weights are finite; then they are set to
    # zero.
    empty = ~seen.any(-1, keepdim=True)
    return weights(scores.masked_fill(~(seen | empty), -math.inf)).masked_fill(empty, 0)


def scaled_to_unit(x: Tensor, eps: float = 1e-12) -> Tensor:
    """x / max(|x|, eps) over the last axis, in fp32 or better."""
    # In fp16 a large |x| overflows, and eps is 0.
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype).clamp(min=eps)
