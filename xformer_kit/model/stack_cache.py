"""The cache of a stack: room for it, and which tokens may be appended to it."""

import math
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from xformer_kit.model.block import READ, Block
from xformer_kit.model.cache import Cache, WindowCache
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import config_error

if TYPE_CHECKING:
    from xformer_kit.model.stack import Stack


def empty_cache(stack: "Stack", rows: int, length: int, source_length: int = 0) -> GenerationCache:
    """Room for `rows` sequences of at most `length` tokens, and a source of `source_length`.

    If no attention sees further back than a window, room for that is enough.
    """
    left = _window(stack)
    if left is not None and WindowCache.room(left) < length:
        past = _caches(stack, rows, WindowCache.room(left), source_length)
        if past.narrow(left):
            return past
    return _caches(stack, rows, length, source_length)


def _caches(stack: "Stack", rows: int, length: int, source_length: int) -> GenerationCache:
    caches = [
        {
            name: attention.cache(rows, source_length if name in block.crosses else length)
            for name, attention in block.attentions().items()
        }
        | _of_positions(stack, block, rows, length)
        for block in stack.calls
    ]
    # A block of averages without norms has no parameter; its buffer is cast with the model.
    tensors = chain(stack.blocks[0].parameters(), stack.blocks[0].buffers())
    like = next(x for x in tensors if x.is_floating_point())
    extras: Any = stack.extra.items()
    extra = {name: extra.caches(rows, length, like) for name, extra in extras}
    return GenerationCache(caches, [block.crosses for block in stack.calls], extra)


def _of_positions(stack: "Stack", block: Block, rows: int, length: int) -> dict[str, Cache]:
    """Room for what positions read of the tokens."""
    found: dict[str, Cache] = {}
    for name, group in block.group_of.items():
        position: Any = stack.position[stack.groups[group].position]
        cache = None if name in block.crosses else position.cache(rows, length)
        if cache is not None:
            found[READ.format(name)] = cache
    return found


def _window(stack: "Stack") -> int | None:
    """How many tokens before a new one are seen at most; None if some attention sees all, if its
    position needs all, and if an extra has caches, which may count real tokens over padding.
    """
    own = [group for group in stack.groups if not group.cross]
    extras: Any = stack.extra.values()
    if not own or any(extra.overrides("caches") for extra in extras):
        return None
    bands = [group.mask.band() for group in own]
    for group, band in zip(own, bands, strict=True):
        scored = "scores" in stack.hooks[group.position]
        if band is None or band[0] == math.inf or band[1] > 0 or scored:
            return None
    return max(int(band[0]) for band in bands)  # type: ignore[index]


def append(stack: "Stack", past: GenerationCache, tokens: Tokens) -> Tokens:
    """Appends tokens; returns those whose keys and values a call attends to."""
    if past.tokens is not None:
        _refuse_unseen(stack, past.tokens, tokens)
    past.tokens = tokens if past.tokens is None else past.tokens.then(tokens)
    return past.seen(tokens.length)


def _refuse_unseen(stack: "Stack", past: Tokens, new: Tokens) -> None:
    """Raises ConfigError if cached tokens would see new ones, which a cache does not allow: if a
    prefix comes in several calls, if a mask sees the future, and if a component breaks causality
    and with it the law of caches.
    """
    if "cache" in stack.breaks and "causality" in stack.breaks:
        raise config_error(
            "cache",
            stack.breaks["cache"],
            fix="Give all tokens in one call, or choose another component.",
        )
    for group in (group for group in stack.groups if not group.cross):
        prefix = group.mask.sees_prefix and new.prefix is not None
        if not (group.mask.sees_future or prefix) or not _sees(group, past, new):
            continue
        if group.mask.sees_future:
            raise config_error(
                "cache",
                f"a mask sees the future, so the {past.length} tokens in the cache would have"
                f" seen the {new.length} that are new",
                fix="Give all tokens in one call, or build the model with mask=causal.",
            )
        raise config_error(
            "prefix",
            f"is seen whole, so the {past.length} tokens in the cache would have seen those of"
            f" the {new.length} new ones that are of it",
            fix=(
                "Give the whole prefix in the first call, and behind it tokens with prefix False."
            ),
        )


def _sees(group: Any, past: Tokens, new: Tokens) -> bool:
    """Whether a real token of `past` would see a real one of `new`."""
    query, key = past.as_query(), new.as_key()
    head = torch.arange(group.heads, device=new.slot.device).view(1, -1, 1, 1)
    seen = group.mask.allows(query, key, head)
    for real in (query.real, key.real):
        seen = seen if real is None else seen & real
    if query.document is not None and key.document is not None:
        seen = seen & (query.document == key.document)
    return bool(seen.any())
