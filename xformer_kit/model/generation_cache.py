"""The cache of a stack in generation."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from xformer_kit.model.cache import Cache, KeyValueCache, WindowCache
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import config_error


class GenerationCache:
    """What a stack keeps between calls in generation: the tokens so far, one cache for each
    attention of each layer, and the caches of the extras.

    caches: for each layer, name -> cache.
    cross_caches: for each layer, the names of the caches of the source's keys and values.
    extra: name of an extra -> its caches by name.
    """

    def __init__(
        self,
        caches: Sequence[dict[str, Cache]],
        cross_caches: Sequence[Sequence[str]] = (),
        extra: Mapping[str, Mapping[str, Cache]] | None = None,
    ):
        self.caches = caches
        self.cross_caches = cross_caches or [()] * len(caches)
        self.extra = extra or {}
        self.tokens: Tokens | None = None
        # newest tokens that are in no cache, because the cached keys were invalid at their length
        self.uncached = 0
        self.window_left: int | None = None  # cached tokens before a new one; None: all

    def use_windows(self, window_left: int) -> bool:
        """Replaces each cache of the stack's own tokens by a WindowCache of `window_left` tokens,
        if all are plain KeyValueCaches. Returns whether they are.
        """
        if any(type(cache) is not KeyValueCache for cache in self._self_caches()):
            return False
        for caches, cross in zip(self.caches, self.cross_caches, strict=True):
            caches |= {
                n: WindowCache(c.held, window_left)  # type: ignore[attr-defined]
                for n, c in caches.items()
                if n not in cross
            }
        self.window_left = window_left
        return True

    def append(self, tokens: Tokens, groups: Sequence[Any], breaks: Mapping[str, str]) -> Tokens:
        """Appends tokens; returns those whose keys and values the new ones attend to.

        groups: the attention groups of the stack.
        breaks: the laws that the stack breaks, with reasons.
        """
        if self.tokens is not None:
            _check_order(groups, breaks, self.tokens, tokens)
        self.tokens = tokens if self.tokens is None else self.tokens.concat(tokens)
        return self.visible(tokens.length)

    def select(self, rows: Tensor, sources: bool = True) -> None:
        """Keeps these rows of the batch, in this order (beam search).

        sources: False if each row replaces one with the same source, whose cached keys and values
        then need no change.
        """
        for cache in self._all_caches() if sources else self._self_caches():
            cache.select(rows)
        if self.tokens is not None:
            self.tokens = self.tokens.select(rows)

    def rewind(self, n: int) -> None:
        """Removes the newest n tokens. Raises ConfigError, without a change, if a cache cannot
        remove them.
        """
        held = self.length
        if n > held:
            raise config_error(
                "rewind",
                f"the cache holds {held} tokens",
                got=n,
                fix=f"Rewind by at most {held}.",
            )
        if n and self.tokens is not None:
            uncached = min(n, self.uncached)
            for cache in sorted(
                self._self_caches(), key=lambda cache: cache.can_rewind
            ):  # those that raise come first
                cache.rewind(n - uncached)
            self.uncached -= uncached
            self.tokens = self.tokens.map(lambda field: field[:, :-n])

    def visible(self, new: int) -> Tokens:
        """The tokens whose keys and values the caches return to the newest `new` tokens."""
        if self.window_left is None or self.length <= self.window_left + new:
            return self.tokens
        return self.tokens.map(lambda field: field[:, -(self.window_left + new) :])

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return 0 if self.tokens is None else self.tokens.length

    @property
    def bytes(self) -> int:
        """Allocated bytes of all caches."""
        return sum(cache.bytes for cache in self._all_caches())

    def _all_caches(self):
        return (
            *(cache for caches in self.caches for cache in caches.values()),
            *self._extra_caches(),
        )

    def _self_caches(self):
        """The caches of the stack's own tokens, not those of a source."""
        pairs = zip(self.caches, self.cross_caches, strict=True)
        of_layers = (
            cache for caches, cross in pairs for n, cache in caches.items() if n not in cross
        )
        return (*of_layers, *self._extra_caches())

    def _extra_caches(self):
        return (cache for caches in self.extra.values() for cache in caches.values())


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
        if group.mask.sees_future:
            raise config_error(
                "cache",
                f"a mask sees the future, so the {past.length} tokens in the cache would have"
                f" attended to the {new.length} new ones",
                fix="Give all tokens in one call, or build the model with mask=causal.",
            )
        raise config_error(
            "prefix",
            f"must be given in one call: the {past.length} tokens in the cache would have attended"
            f" to those of the {new.length} new ones that belong to it",
            fix="Give the whole prefix in the first call, and later tokens with prefix False.",
        )


def _attends(group: Any, past: Tokens, new: Tokens) -> bool:
    """Whether a real token of `past` would attend to a real one of `new`."""
    query, key = past.as_query(), new.as_key()
    head = torch.arange(group.heads, device=new.slot.device).view(1, -1, 1, 1)
    seen = group.mask.allows(query, key, head)
    for real in (query.real, key.real):
        seen = seen if real is None else seen & real
    if query.document is not None and key.document is not None:
        seen = seen & (query.document == key.document)
    return bool(seen.any())
