"""Generation with a compiled step: one graph for every token, since no shape changes.

The caches have their full length from the start, and the slot of the new token is a tensor; the
keys after it are hidden as padding is. On CUDA torch replays the graph as a CUDA graph.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from xformer_kit.generate.prompt import CachedModel, Prompt
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.registry import config_error
from xformer_kit.tensors.cache import KeyValueCache
from xformer_kit.tensors.tokens import Tokens

LENGTHS = 128  # a cache has a multiple of so many tokens, so that few graphs are compiled
CAUSAL = (math.inf, 0)  # the band of a mask that hides only later tokens
# model -> rows and lengths of its caches -> the caches and the compiled step
STEPS: WeakKeyDictionary[nn.Module, dict[Any, tuple["FullLengthCaches", Any]]] = WeakKeyDictionary()


class FullLengthCache(KeyValueCache):
    """A cache that returns the tensors of its full length. at: the slot of the new token, (1,)."""

    def __init__(self, like: KeyValueCache, at: Tensor):
        self.tensors = [torch.zeros_like(tensor) for tensor in like.tensors]
        self.at, self.length = at, like.length

    def append(self, *new: Tensor) -> list[Tensor]:
        for tensor, added in zip(self.tensors, new, strict=True):
            tensor.index_copy_(-2, self.at, added.to(tensor.dtype))
        return self.tensors


class FullLengthCaches(GenerationCache):
    """The caches of a stack in compiled steps."""

    def __init__(self, past: GenerationCache, device: torch.device):
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        caches = [
            {name: FullLengthCache(cache, self.at) for name, cache in own.items()}  # type: ignore[arg-type]
            for own in past.caches
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
        for own, cached in zip(self.caches, past.caches, strict=True):
            for name, cache in own.items():
                pairs = zip(cache.tensors, cached[name].kept(), strict=True)  # type: ignore[attr-defined]
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


class CompiledModel(CachedModel):
    """A `CachedModel` whose calls run a compiled step. Raises ConfigError for a model whose caches
    have no full length, or whose attention depends on more than the order of the tokens.
    """

    def __init__(self, model: Any, prompt: Prompt, new: int):
        length = -(-(prompt.length + new) // LENGTHS) * LENGTHS
        length = min(length, model.max_seq_len or length)
        super().__init__(model, prompt, length - prompt.length)
        if reason := obstacle(model, self.past):
            raise config_error("compiled", reason, fix="Leave it out.")
        self.caches: FullLengthCaches | None = None

    def __call__(self, new: Tensor) -> Tensor:
        if self.caches is None:
            self.caches, self.step = self._begin()
        self.caches.at.add_(1)
        return self.checked(self.step(self.model, self.caches, new[:, None], self.source))

    def _begin(self) -> tuple[FullLengthCaches, Any]:
        """Returns the caches and the step for this number of rows and lengths."""
        past, steps = self.past, STEPS.setdefault(self.model, {})
        if self.model.stack.needs_recompute(past, _tokens_after(past)):
            rule = f"a position depends on the number of tokens, {past.max_len}"
            raise config_error("compiled", rule, fix="Leave it out.")
        dtypes = [t.dtype for own in past.caches for c in own.values() for t in c.tensors]
        key = past.rows, past.max_len, past.source_len, *dtypes
        if key not in steps:
            caches = FullLengthCaches(past, self.tokens.ids.device)  # type: ignore[union-attr]
            mode = "reduce-overhead" if caches.at.is_cuda else "default"
            limits: Any = torch._dynamo.config  # of all models and lengths together
            limits.recompile_limit += 1
            steps[key] = caches, torch.compile(_step, fullgraph=True, dynamic=False, mode=mode)
        steps[key][0].begin(past)
        return steps[key]


def _tokens_after(past: GenerationCache) -> Tokens:
    """As many tokens as the caches have room for."""
    tokens: Any = past.tokens
    return Tokens(tokens.ids.new_zeros(past.rows, past.max_len - past.length))


def _step(model: Any, caches: FullLengthCaches, ids: Tensor, source: Any) -> Tensor:
    """The logits (b, vocab) after one more token of each row, ids (b, 1)."""
    hidden, _ = model.hidden(caches.next(ids), caches, source)
    return model.head(hidden[:, -1])


def obstacle(model: Any, past: GenerationCache) -> str | None:
    """Returns why no step of a model can be compiled, or None."""
    stack = model.stack
    if stack.extra:
        return f"the step of a model with extra '{next(iter(stack.extra))}' has not one shape"
    if any(type(cache) is not KeyValueCache for own in past.caches for cache in own.values()):
        return "a cache of this model is no table of keys and values"
    own = [group for group in stack.attention_groups if not group.cross]
    if any(group.mask.band() != CAUSAL for group in own):
        return "is for masks that hide later tokens only"
    if "padding" in stack.breaks:
        return stack.breaks["padding"]
    for name, enters in stack.position_enters.items():
        if "scores" in enters:
            return f"position '{name}' computes scores from all tokens"
    return None
