"""A block: sublayers, and the placements that carry the residual stream around them."""

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import Attention
from xformer_kit.extra import Extra, ExtraInput
from xformer_kit.model.cache import Cache
from xformer_kit.model.report import Report, add
from xformer_kit.model.tokens import UNKNOWN, AttentionContext, Tokens
from xformer_kit.placement import Placement, State, Sublayer

Memory = dict[str, Tensor]  # what attentions give to those of later layers
READ = "{}.position"  # name of the cache of what a position reads before an attention


class LayerInput(NamedTuple):
    """What a block receives besides the residual stream."""

    contexts: Mapping[str, AttentionContext] = {}  # by sublayer
    tokens: Tokens = UNKNOWN
    source: Tensor | None = None  # (b, s, dim)
    caches: Mapping[str, Cache] = {}  # by sublayer; empty outside of generation
    memory: Memory = {}
    extras: Mapping[str, ExtraInput] = {}


class Block(nn.Module):
    """Groups of sublayers with one placement around each; the sublayers of a group run in parallel
    on one input.

    group_of: attention -> index of its group among the stack's. crosses: attentions to another
    stack. multipliers: factors of what sublayers add to the residual stream. calls: number of
    layers that call it. extras: by name, those that have a module for this layer; the stack owns
    them. variant: name of its plan among the stack's.
    """

    def __init__(
        self,
        sublayers: Mapping[str, nn.Module],
        groups: Sequence[Sequence[str]],
        placements: Sequence[Placement],
        group_of: Mapping[str, int],
        crosses: Sequence[str],
        dropout: float,
        multipliers: Mapping[str, float],
        calls: int,
        extras: Mapping[str, Extra],
        variant: str,
    ):
        super().__init__()
        for name, module in sublayers.items():
            self.add_module(name, module)
        self.groups = tuple(map(tuple, groups))
        names = map("_".join, self.groups)
        self.placement = nn.ModuleDict(dict(zip(names, placements, strict=True)))
        self.group_of = dict(group_of)
        self.crosses = crosses
        self.dropout = dropout
        self.multipliers = dict(multipliers)
        self.called = calls
        self.extras = dict(extras)
        self.variant = variant

    def forward(self, state: State, layer: LayerInput) -> tuple[State, Report, Memory]:
        """The state after the block, the reports of its sublayers (`loss` summed, the rest by
        name), and the memory with what attentions added.

        The memory is never changed in place: recomputing a block reads what it read before, and
        FSDP, which under mixed precision gives a block copies of its arguments, loses nothing.
        """
        report: Report = {}
        memory = dict(layer.memory)
        layer = layer._replace(memory=memory)
        for names, placement in zip(self.groups, self.placement.values(), strict=True):
            branches = [self._branch(name, layer, report) for name in names]
            total = partial(self._total, names, layer)
            state = placement(state, branches, total, layer.tokens)
        return state, report, memory

    def _branch(self, name: str, layer: LayerInput, report: Report) -> Sublayer:
        if name in self.group_of:
            branch: Sublayer = partial(self._attend, name, layer)
        else:
            branch = partial(self._feed_forward, name, layer.tokens, report)
        for key, extra in self.extras.items():
            branch = extra.wrap(name, branch, layer.extras[key])
        return branch

    def _attend(self, name: str, layer: LayerInput, x: Tensor) -> Tensor:
        values = [
            partial(extra.values, layer=layer.extras[key]._replace(memo=layer.memory))
            for key, extra in self.extras.items()
        ]
        context = layer.contexts[name]._replace(memo=layer.memory, values=values)
        if context.reads:
            cache = layer.caches.get(READ.format(name))
            context = context._replace(added=context.position.read(x, context, cache))
        source = layer.source if name in self.crosses else None
        cache = layer.caches.get(name)
        return getattr(self, name)(x, source=source, context=context, cache=cache)

    def _feed_forward(self, name: str, tokens: Tokens, report: Report, x: Tensor) -> Tensor:
        x, of_ffn = getattr(self, name)(x, tokens)
        add(report, of_ffn, name)
        return x

    def _total(self, names: Sequence[str], layer: LayerInput, outputs: Sequence[Tensor]) -> Tensor:
        """What a group adds to the residual stream."""
        added = (self._added(n, layer, h) for n, h in zip(names, outputs, strict=True))
        return reduce(torch.add, added)

    def _added(self, name: str, layer: LayerInput, h: Tensor) -> Tensor:
        if self.dropout:
            h = F.dropout(h, self.dropout, self.training)
        for key, extra in self.extras.items():
            h = extra.added(name, h, layer.extras[key])
        factor = self.multipliers[name]
        return h if factor == 1.0 else h * factor

    def attentions(self) -> dict[str, Attention]:
        return {name: getattr(self, name) for name in self.group_of}
