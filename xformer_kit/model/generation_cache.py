"""The cache of a stack in generation."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from xformer_kit.registry import config_error
from xformer_kit.tensors.cache import Cache, FullLengthCache, KeyValueCache, WindowCache
from xformer_kit.tensors.tokens import AttentionContext, Tokens, order_without_gaps


@dataclass(eq=False)
class GenerationCache:
    """What a stack keeps between calls in generation: the tokens so far, one cache for each
    attention of each layer, and the caches of the extras.
    """

    caches: Sequence[dict[str, Cache]]  # for each layer, name -> cache
    # for each layer, the names of the caches of the source's keys and values
    cross_caches: Sequence[Sequence[str]]
    extra: Mapping[str, dict[str, Cache]]  # name of an extra -> its caches by name
    rows: int  # number of sequences
    max_len: int  # tokens for which it has room
    source_len: int  # tokens of the source
    tokens: Tokens | None = None  # so far
    # newest tokens that are in no cache, because the cached keys were invalid at their length
    uncached: int = 0
    window_left: int | None = None  # cached tokens before a new one; None: all
    front: int = 0  # tokens in front of the text, which are in the caches only
    padded_later: bool = False  # whether a call after the first has given padding
    # this cache and all others; found at the first call
    _owners: list[Any] = field(default_factory=list, repr=False)
    embedded: bool = False  # whether a call has given embeddings, which are not kept

    def use_windows(self, window_left: int) -> bool:
        """Replaces each cache of the stack's own tokens by a WindowCache of `window_left` tokens,
        if all are plain KeyValueCaches. Returns whether they are.
        """
        if any(type(cache) is not KeyValueCache for cache in self._caches(sources=False)):
            return False
        for caches, cross in zip(self.caches, self.cross_caches, strict=True):
            caches |= {
                n: WindowCache(c.tensors, window_left)  # type: ignore[arg-type]
                for n, c in caches.items()
                if n not in cross
            }
        self.window_left = window_left
        self._owners.clear()
        return True

    def check(self, ids: Tensor, source_len: int) -> None:
        """Raises ConfigError for ids (b, t) and a source of `source_len` tokens that it cannot
        hold.
        """
        rows, new = ids.shape
        if rows != self.rows:
            raise config_error("ids", "must have the rows of the cache", f"{rows} and {self.rows}")
        if source_len != self.source_len:
            rule, got = "must have the cache's source_length", f"{source_len} and {self.source_len}"
            raise config_error("source", rule, got)
        if self.length + new > self.max_len:
            raise config_error(
                "cache",
                f"has room for {self.max_len} tokens, of which {self.length} are taken",
                got=f"{new} more",
                fix="Create it with a larger length: model.cache(rows, length).",
            )

    @contextmanager
    def unchanged_if_refused(self) -> Iterator[None]:
        """A context in which a call appends to the caches; if it raises, they are as before."""
        owners = self._owners
        if not owners:
            owners += self, *self._caches()
        before = [vars(owner).copy() for owner in owners]
        for state in before:
            for name, value in state.items():
                if type(value) is list:
                    state[name] = value[:]
        try:
            yield
        except BaseException:
            for owner, state in zip(owners, before, strict=True):
                vars(owner).clear()
                vars(owner).update(state)
            raise

    def append(self, tokens: Tokens, groups: Sequence[Any], breaks: Mapping[str, str]) -> Tokens:
        """Appends tokens; returns those whose keys and values the new ones attend to.

        groups: the attention groups of the stack.
        breaks: the laws that the stack breaks, with reasons.
        """
        if self.tokens is not None:
            _check_order(groups, breaks, self.tokens, tokens)
            self.padded_later |= tokens.real is not None
        self.tokens = tokens if self.tokens is None else self.tokens.concat(tokens)
        return self.visible(tokens.length)

    def select(self, rows: Tensor, sources: bool = True) -> None:
        """Keeps these rows of the batch, in this order (beam search).

        sources: False if each row replaces one with the same source, whose cached keys and values
        then need no change.
        """
        self.rows = len(rows)
        for cache in self._caches(sources):
            cache.select(rows)
        if self.tokens is not None:
            self.tokens = self.tokens.select(rows)

    def rewind(self, n: int) -> None:
        """Removes the newest n tokens. Raises ConfigError, without a change, if a cache cannot
        remove them.
        """
        if n > self.length:
            raise config_error(
                "rewind",
                f"the cache holds {self.length} tokens",
                got=n,
                fix=f"Rewind by at most {self.length}.",
            )
        if n and self.tokens is not None:
            uncached = min(n, self.uncached)
            # Those that raise come first.
            front = self.front if uncached < n == self.length else 0
            for cache in sorted(self._caches(sources=False), key=lambda cache: cache.can_rewind):
                cache.rewind(n - uncached + front)
            self.uncached -= uncached
            kept = self.tokens.map(lambda field: field[:, :-n])
            if self.tokens.position is self.tokens.slot:  # and stays the same tensor
                kept = kept._replace(position=kept.slot)
            self.tokens = kept if kept.length else None

    def visible(self, new: int) -> Tokens:
        """The tokens whose keys and values the caches return to the newest `new` tokens."""
        if self.window_left is None or self.length <= self.window_left + new:
            return self.tokens
        return self.tokens.map(lambda field: field[:, -(self.window_left + new) :])

    def full_length(self) -> "FullLengthCaches":
        """Caches of the full length, for compiled steps; all of its caches must be plain
        KeyValueCaches.
        """
        return FullLengthCaches(self)

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return 0 if self.tokens is None else self.tokens.length

    @property
    def bytes(self) -> int:
        """Allocated bytes of all caches."""
        return sum(cache.bytes for cache in self._caches())

    def _caches(self, sources: bool = True) -> Iterator[Cache]:
        """All caches of layers and extras.

        sources: False leaves out caches of the source's keys and values, for cross attention.
        """
        for caches, cross in zip(self.caches, self.cross_caches, strict=True):
            for name, cache in caches.items():
                if sources or name not in cross:
                    yield from cache.each()
        for caches in self.extra.values():
            for cache in caches.values():
                yield from cache.each()


class FullLengthCaches(GenerationCache):
    """The caches of a stack in compiled steps."""

    def __init__(self, past: GenerationCache):
        device = past.tokens.ids.device  # type: ignore[union-attr]
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        plain: Any = past.caches
        caches = [
            {name: FullLengthCache(cache, self.at) for name, cache in own.items()} for own in plain
        ]
        sizes = past.rows, past.max_len, past.source_len
        super().__init__(caches, past.cross_caches, {}, *sizes)  # type: ignore[arg-type]
        self.slot = torch.arange(past.max_len, device=device)[None]
        self.position = self.slot.repeat(past.rows, 1)
        self.real = torch.ones_like(self.position, dtype=torch.bool)
        tensors = [tensor for own in caches for cache in own.values() for tensor in cache.tensors]
        for tensor in (*tensors, self.at, self.slot, self.position, self.real):
            torch._dynamo.mark_static_address(tensor)

    def begin(self, past: GenerationCache) -> None:
        """Takes over what the caches hold after the prompt."""
        tokens: Any = past.tokens
        plain: Any = past.caches
        for own, cached in zip(self.caches, plain, strict=True):
            for name, cache in own.items():
                pairs = zip(cache.tensors, cached[name].kept(), strict=True)
                for tensor, kept in pairs:
                    tensor.narrow(-2, 0, kept.shape[-2]).copy_(kept)
        length = tokens.length
        self.at.fill_(length - 1)
        self.real[:, :length] = True if tokens.real is None else tokens.real
        self.position[:, :length] = tokens.position
        later = torch.arange(1, self.max_len - length + 1, device=self.at.device)
        self.position[:, length:] = tokens.position[:, -1:] + later

    def next(self, ids: Tensor) -> Tokens:
        """The new token of each row, (b, 1)."""
        return Tokens(ids, self.at[None], self.position.index_select(1, self.at))

    def append(self, tokens: Tokens, groups: Sequence[Any], breaks: Mapping[str, str]) -> Tokens:
        """Returns all tokens, of which those after the new one are padding."""
        return Tokens(None, self.slot, self.position, real=self.real & (self.slot <= self.at))

    def check(self, ids: Tensor, source_len: int) -> None:
        """There is room for the tokens."""

    @contextmanager
    def unchanged_if_refused(self) -> Iterator[None]:
        """No call is refused."""
        yield


def _check_order(
    groups: Sequence[Any], breaks: Mapping[str, str], past: Tokens, new: Tokens
) -> None:
    """Raises ConfigError if cached tokens would attend to new ones: if a prefix is given in several
    calls, if a mask sees the future, or if a component breaks causality and the law of caches.
    """
    if "cache" in breaks and "causality" in breaks:
        raise config_error(
            "cache",
            breaks["cache"],
            fix="Give all tokens in one call, or choose another component.",
        )
    for group in (group for group in groups if not group.cross):
        prefix = group.mask.sees_prefix and new.prefix is not None
        if not (group.mask.sees_future or prefix) or not _attends(group, past, new):
            continue
        path, rule = "prefix", "must be given in one call"
        fix = "Give the whole prefix in the first call, and later tokens with prefix False."
        if group.mask.sees_future:
            path, rule = "cache", "a mask sees the future"
            fix = "Give all tokens in one call, or build the model with mask=causal."
        raise config_error(
            path,
            f"{rule}: the {past.length} tokens in the cache would have attended to the {new.length}"
            " new ones",
            fix=fix,
        )


def _attends(group: Any, past: Tokens, new: Tokens) -> bool:
    """Whether a real token of `past` would attend to a real one of `new`."""
    tokens = past.concat(new)
    order = order_without_gaps(tokens.real)
    if order is not None:
        tokens = tokens._replace(slot=order.argsort(-1))
    if tokens.document is not None:
        tokens = tokens._replace(document=tokens.document_runs())
    context = AttentionContext(tokens, tokens, group.mask, None)
    context = context.narrow(slice(past.length), slice(past.length, None))
    allowed: Any = context.visible_pairs(group.heads, covered=False)
    if tokens.real is not None:
        allowed = allowed & context.query.as_query().real
    return bool(allowed.any())
