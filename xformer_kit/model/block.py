"""A block: sublayers, and the placements that carry the residual stream around them."""

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import Attention
from xformer_kit.extra import Extra, ExtraInput
from xformer_kit.ffn import FFN
from xformer_kit.model.cache import Cache
from xformer_kit.model.report import Report, add
from xformer_kit.model.tokens import UNKNOWN, Tokens, View
from xformer_kit.placement import Placement, State, Sublayer

Memory = dict[str, Tensor]  # what attentions give to those of later layers
READ = "{}.position"  # name of the cache of what a position reads before an attention


class LayerInput(NamedTuple):
    """What a block receives besides the residual stream."""

    contexts: Mapping[str, View] = MappingProxyType({})  # by sublayer
    tokens: Tokens = UNKNOWN
    source: Tensor | None = None  # (b, s, dim)
    caches: Mapping[str, Cache] | None = None  # by sublayer; None outside of generation
    memory: Memory = {}
    extras: Mapping[str, ExtraInput] = {}


class Block(nn.Module):
    """Groups of sublayers with one placement around each; the sublayers of a group run in parallel
    on one input.

    group_of: attention -> index of its group among the stack's. crosses: attentions to another
    stack. multipliers: factors of what sublayers add to the residual stream. calls: number of
    layers that call it. extras: hooks of this layer by the extra's name; the stack owns them.
    variant: name of its plan among the stack's.
    """

    def __init__(
        self,
        sublayers: Mapping[str, nn.Module],
        groups: Sequence[Sequence[str]],
        placements: Sequence[Placement],
        group_of: Mapping[str, int],
        crosses: Sequence[str] = (),
        dropout: float = 0.0,
        multipliers: Mapping[str, float] = MappingProxyType({}),
        calls: int = 1,
        extras: Mapping[str, Extra] = MappingProxyType({}),
        variant: str = "base",
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
        self.variant = variant
        self.hooked = tuple(extras)  # extras that have a module for this layer
        self.wraps, self.adds, self.changes = (
            tuple((name, extra) for name, extra in extras.items() if extra.overrides(hook))
            for hook in ("wrap", "added", "values")
        )

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
            branch = partial(_reporting, getattr(self, name), name, layer.tokens, report)
        for key, extra in self.wraps:
            branch = extra.wrap(name, branch, layer.extras[key])
        return branch

    def _attend(self, name: str, layer: LayerInput, x: Tensor) -> Tensor:
        caches = layer.caches or {}
        context = layer.contexts[name]._replace(memo=layer.memory)
        if self.changes:
            changes = [partial(_values, extra, layer.extras[key]) for key, extra in self.changes]
            context = context._replace(values=changes)
        if context.reads:
            read = context.position.read(x, context, caches.get(READ.format(name)))
            context = context._replace(position=read)
        source = layer.source if name in self.crosses else None
        return getattr(self, name)(x, source=source, view=context, cache=caches.get(name))

    def _total(self, names: Sequence[str], layer: LayerInput, outputs: Sequence[Tensor]) -> Tensor:
        """What a group adds to the residual stream."""
        added = (self._added(n, layer, h) for n, h in zip(names, outputs, strict=True))
        return reduce(torch.add, added)

    def _added(self, name: str, layer: LayerInput, h: Tensor) -> Tensor:
        if self.dropout:
            h = F.dropout(h, self.dropout, self.training)
        for key, extra in self.adds:
            h = extra.added(name, h, layer.extras[key])
        factor = self.multipliers.get(name, 1.0)
        return h if factor == 1.0 else h * factor

    def attentions(self) -> dict[str, Attention]:
        return {name: getattr(self, name) for name in self.group_of}


def _values(extra: Extra, layer: ExtraInput, v: Tensor, x: Tensor) -> Tensor:
    return extra.values(v, x, layer)


def _reporting(ffn: FFN, name: str, tokens: Tokens, report: Report, x: Tensor) -> Tensor:
    x, more = ffn(x, tokens)
    add(report, more, name)
    return x
