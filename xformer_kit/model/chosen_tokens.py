"""A layer that runs on some of the tokens of each row."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from xformer_kit.extra import Chosen
from xformer_kit.model.block import Block, BlockInput
from xformer_kit.placement import State
from xformer_kit.registry import config_error
from xformer_kit.tensors.cache import Cache
from xformer_kit.tensors.report import Report
from xformer_kit.tensors.tokens import AttentionContext, Tokens, with_fields

CACHE_NAME = "tokens"  # of the layer's TokenCache, among the caches of its sublayers
# From the tokens, the block's input of them and its groups, attention -> index: attention -> its
# context.
Contexts = Callable[[Chosen, BlockInput, Mapping[str, int]], dict[str, AttentionContext]]


class TokenCache(Cache):
    """The tokens whose keys and values the caches of a layer hold."""

    can_rewind = False

    def __init__(self) -> None:
        self.tokens: Tokens | None = None

    @property
    def tensors(self) -> list[Tensor]:  # type: ignore[override]
        return [] if self.tokens is None else [x for x in self.tokens if x is not None]

    def append(self, new: Tokens) -> Tokens:  # type: ignore[override]
        """Appends tokens; returns all."""
        self.tokens = new if self.tokens is None else self.tokens.concat(new)
        return self.tokens

    def select(self, rows: Tensor) -> None:
        if self.tokens is not None:
            self.tokens = self.tokens.select(rows)

    def rewind(self, n: int) -> None:
        if n:
            raise config_error(
                "rewind",
                "a layer that runs on some of the tokens keeps a different number for each row",
                got=f"{n} tokens",
                fix="Begin again with the prompt.",
            )


def run_on_chosen(
    block: Block, state: State, layer: BlockInput, chosen: Chosen, contexts: Contexts
) -> tuple[State, Report]:
    """Returns the state after the block has run on the chosen tokens only, and its report. layer:
    its input for all tokens.
    """
    if chosen.at.shape[1] == 0:
        if not block.cross_attentions:
            return state, {}
        chosen = _padding(chosen)  # their keys of the source are cached by the first call
    cache: Any = layer.caches.get(CACHE_NAME)
    query = chosen_tokens(layer.tokens, chosen, 0 if cache is None else _length(cache.tokens))
    key = query if cache is None else cache.append(query)
    extras = {
        name: with_fields(of_extra, tokens=query, key=key)
        for name, of_extra in layer.extras.items()
    }
    layer = with_fields(layer, tokens=query, key=key, extras=extras)
    layer = with_fields(layer, contexts=contexts(chosen, layer, block.attention_group_of))
    index = chosen.at[..., None]
    inputs = tuple(x.gather(1, index.expand(-1, -1, x.shape[-1])) for x in state)
    outputs, report, _ = block(inputs, layer)
    changes = [y - x for x, y in zip(inputs, outputs, strict=True)]
    factor = chosen.weight
    if chosen.real is not None:
        real = chosen.real.to(changes[0].dtype)
        factor = real if factor is None else factor * real
    if factor is not None:
        changes = [change * factor[..., None].to(change.dtype) for change in changes]
    added = (
        torch.scatter_add(x, 1, index.expand_as(c), c) for x, c in zip(state, changes, strict=True)
    )
    return tuple(added), report


def _padding(chosen: Chosen) -> Chosen:
    """The first token of each row, as padding."""
    first = chosen.at.new_zeros(len(chosen.at), 1)
    return Chosen(first, first > 0)


def _length(tokens: Tokens | None) -> int:
    return 0 if tokens is None else tokens.length


def chosen_tokens(tokens: Tokens, chosen: Chosen, cached: int) -> Tokens:
    """The chosen tokens, with slots that follow the cached ones."""
    rows, count = chosen.at.shape
    found = tokens.map(lambda field: torch.take_along_dim(field.expand(rows, -1), chosen.at, -1))
    slot = torch.arange(cached, cached + count, device=chosen.at.device)[None]
    real = found.real
    if chosen.real is not None:
        real = chosen.real if real is None else real & chosen.real
    return found._replace(slot=slot, real=real)
