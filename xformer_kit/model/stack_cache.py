"""Creates the cache of a stack."""

import math
from itertools import chain
from typing import Any

from xformer_kit.model.block import POSITION_CACHE_NAME, Block
from xformer_kit.model.chosen_tokens import CACHE_NAME, TokenCache
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.stack import Stack
from xformer_kit.tensors.cache import Cache, WindowCache


def empty_cache(stack: Stack, rows: int, length: int, source_length: int = 0) -> GenerationCache:
    """Returns an empty cache for `rows` sequences of at most `length` tokens, and a source of
    `source_length` tokens. If every attention is limited to a window, it holds only that window.
    """
    window_left = _window_left(stack)
    if window_left is not None and WindowCache.capacity(window_left) < length:
        cache = _caches(stack, rows, WindowCache.capacity(window_left), source_length)
        if cache.use_windows(window_left):
            cache.max_len = length
            return cache
    return _caches(stack, rows, length, source_length)


def _caches(stack: Stack, rows: int, length: int, source_length: int) -> GenerationCache:
    """Returns an empty cache that holds `length` tokens of each attention, after those in front of
    the text.
    """
    room = length + stack.num_front
    caches = [
        _sublayer_caches(block, rows, room, source_length)
        | _position_caches(stack, block, rows, room)
        | _token_caches(stack, depth)
        for depth, block in enumerate(stack.layers)
    ]
    # A block without any parameter (attn=mean, norm=none) has a buffer, which is cast with the
    # model.
    tensors = chain(stack.blocks[0].parameters(), stack.blocks[0].buffers())
    like = next(x for x in tensors if x.is_floating_point())
    extras: Any = stack.extra.items()
    extra = {name: extra.caches(rows, room, like) for name, extra in extras}
    cross_caches = [block.cross_attentions for block in stack.layers]
    front = stack.num_front
    return GenerationCache(caches, cross_caches, extra, rows, length, source_length, front=front)


def _sublayer_caches(block: Block, rows: int, length: int, source_length: int) -> dict[str, Cache]:
    """Empty caches of the sublayers that have one."""
    caches = {
        name: module.cache(rows, source_length if name in block.cross_attentions else length)
        for name, module in block.sublayers().items()
        if hasattr(module, "cache")  # one that replaces a feed-forward network may have none
    }
    return {name: cache for name, cache in caches.items() if cache is not None}


def _position_caches(stack: Stack, block: Block, rows: int, length: int) -> dict[str, Cache]:
    """Empty caches of the positions that read the inputs of attentions."""
    caches: dict[str, Cache] = {}
    for name, group in block.attention_group_of.items():
        position: Any = stack.position[stack.attention_groups[group].position]
        cache = None if name in block.cross_attentions else position.cache(rows, length)
        if cache is not None:
            caches[POSITION_CACHE_NAME.format(name)] = cache
    return caches


def _window_left(stack: Stack) -> int | None:
    """The largest number of tokens before a token that any attention attends to. None if unlimited,
    if a position computes scores from all tokens, if an extra or a feed-forward network has caches,
    or if there are tokens in front of the text.
    """
    own = [group for group in stack.attention_groups if not group.cross]
    extras: Any = stack.extra.values()
    reads_past = any(extra.overrides("caches") for extra in extras) or _ffn_reads_past(stack)
    if not own or reads_past or stack.num_front:
        return None
    if any("scores" in stack.position_enters[group.position] for group in own):
        return None
    bands = [group.mask.band() or (math.inf, math.inf) for group in own]
    left, right = map(max, zip(*bands, strict=True))
    return None if left == math.inf or right > 0 else int(left)


def _token_caches(stack: Stack, depth: int) -> dict[str, Cache]:
    """The cache of the tokens of a layer that runs on some of them."""
    extras: Any = stack.extra.values()
    return {CACHE_NAME: TokenCache()} if any(e.chooses(depth) for e in extras) else {}


def _ffn_reads_past(stack: Stack) -> bool:
    """Whether a feed-forward network has a cache."""
    return any(
        module.cache(1, 1) is not None
        for block in stack.blocks
        for name, module in block.sublayers().items()
        if name not in block.attention_names and hasattr(module, "cache")
    )
