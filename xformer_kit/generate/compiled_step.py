"""Generation with a compiled step: one graph for every token, since no shape changes.

The caches have their full length from the start, and the slot of the new token is a tensor; the
keys after it are hidden as padding is. On CUDA torch replays the graph as a CUDA graph.
"""

import math
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, finalize

import torch
from torch import Tensor, nn

from xformer_kit.generate.prompt import CachedModel, Prompt
from xformer_kit.registry import config_error
from xformer_kit.tensors.cache import KeyValueCache
from xformer_kit.tensors.tokens import Tokens

LENGTHS = 128  # a cache has a multiple of so many tokens, so that few graphs are compiled
CAUSAL = (math.inf, 0)  # the band of a mask that hides only later tokens
# model -> rows and lengths of caches -> caches that no generation uses, kept for the next one
CACHES: WeakKeyDictionary[nn.Module, dict[Any, Any]] = WeakKeyDictionary()


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
        self.caches: Any = None

    def __call__(self, new: Tensor) -> Tensor:
        if self.caches is None:
            self.caches = self._begin()
            self.step = compiled_step(self.caches.at.is_cuda)
        self.caches.at.add_(1)
        return self.checked(self.step(self.model, self.caches, new[:, None], self.source))

    def _begin(self) -> Any:
        """Returns the caches for this number of rows and lengths, with what the prompt has
        cached.
        """
        past, kept = self.past, CACHES.setdefault(self.model, {})
        if self.model.stack.needs_recompute(past, _tokens_after(past)):
            rule = f"a position depends on the number of tokens, {past.max_len}"
            raise config_error("compiled", rule, fix="Leave it out.")
        dtypes = [t.dtype for own in past.caches for c in own.values() for t in c.tensors]
        key = past.rows, past.max_len, past.source_len, *dtypes
        if (caches := kept.pop(key, None)) is None:
            caches = past.full_length()
            limits: Any = torch._dynamo.config  # of all models and lengths together
            limits.recompile_limit += 1
        caches.begin(past)
        finalize(self, kept.__setitem__, key, caches)
        return caches


def _tokens_after(past: Any) -> Tokens:
    """As many tokens as the caches have room for."""
    tokens: Any = past.tokens
    return Tokens(tokens.ids.new_zeros(past.rows, past.max_len - past.length))


@cache
def compiled_step(on_cuda: bool) -> Any:
    """Returns the compiled `_step`, which has a graph for each shape of its inputs."""
    mode = "reduce-overhead" if on_cuda else "default"
    return torch.compile(_step, fullgraph=True, dynamic=False, mode=mode)


def _step(model: Any, caches: Any, ids: Tensor, source: Any) -> Tensor:
    """The logits (b, vocab) after one more token of each row, ids (b, 1)."""
    hidden, _ = model.hidden(caches.next(ids), caches, source)
    return model.head(hidden[:, -1])


def obstacle(model: Any, past: Any) -> str | None:
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
