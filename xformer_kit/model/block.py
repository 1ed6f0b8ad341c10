"""A transformer block: sublayers, with a residual placement around each group of them."""

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

CrossLayerState = dict[str, Tensor]  # tensors that attentions pass to later layers, by name
POSITION_CACHE = "{}.position"  # name of the cache of a position that reads an attention's input


class LayerInput(NamedTuple):
    """The inputs of a block in addition to the residual stream."""

    contexts: Mapping[str, AttentionContext] = {}  # by sublayer
    tokens: Tokens = UNKNOWN
    source: Tensor | None = None  # (b, s, dim)
    caches: Mapping[str, Cache] = {}  # by sublayer; empty outside generation
    cross_layer_state: CrossLayerState = {}
    extras: Mapping[str, ExtraInput] = {}


class Block(nn.Module):
    """Groups of sublayers, applied one after another, with one placement around each group. The
    sublayers of a group run in parallel on the same input.

    sublayers: name -> module.
    groups: the names of the sublayers in each group.
    group_of: name of an attention -> index of its attention group in the stack.
    cross_attentions: names of the attentions to the other stack.
    dropout: probability, on the output of each sublayer.
    multipliers: name of a sublayer -> factor on its output.
    num_calls: number of layers that use this block.
    extras: name -> module of an extra for this layer; the stack owns them.
    variant: name of the block's plan in the stack's plan; "base" or that of a variant.
    """

    def __init__(
        self,
        sublayers: Mapping[str, nn.Module],
        groups: Sequence[Sequence[str]],
        placements: Sequence[Placement],
        group_of: Mapping[str, int],
        cross_attentions: Sequence[str],
        dropout: float,
        multipliers: Mapping[str, float],
        num_calls: int,
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
        self.cross_attentions = cross_attentions
        self.dropout = dropout
        self.multipliers = dict(multipliers)
        self.num_calls = num_calls
        self.extras = dict(extras)
        self.variant = variant

    def forward(self, state: State, layer: LayerInput) -> tuple[State, Report, CrossLayerState]:
        """Returns the state after the block, the reports of its sublayers (`loss` summed, the rest
        by name), and the cross-layer state with what its attentions added.

        `layer.cross_layer_state` is copied first: activation checkpointing then recomputes the
        block from the same input, and FSDP may pass copies of the arguments under mixed precision.
        """
        report: Report = {}
        cross_layer_state = dict(layer.cross_layer_state)
        layer = layer._replace(cross_layer_state=cross_layer_state)
        for names, placement in zip(self.groups, self.placement.values(), strict=True):
            branches = [self._branch(name, layer, report) for name in names]
            total = partial(self._total, names, layer)
            state = placement(state, branches, total, layer.tokens)
        return state, report, cross_layer_state

    def _branch(self, name: str, layer: LayerInput, report: Report) -> Sublayer:
        """A sublayer as a function of its input only. `wrap` of each extra may change its input and
        output.
        """
        if name in self.group_of:
            branch: Sublayer = partial(self._attend, name, layer)
        else:
            branch = partial(self._feed_forward, name, layer.tokens, report)
        for key, extra in self.extras.items():
            branch = extra.wrap(name, branch, layer.extras[key])
        return branch

    def _attend(self, name: str, layer: LayerInput, x: Tensor) -> Tensor:
        shared = layer.cross_layer_state
        value_hooks = [
            partial(extra.values, layer=layer.extras[key]._replace(cross_layer_state=shared))
            for key, extra in self.extras.items()
        ]
        context = layer.contexts[name]._replace(cross_layer_state=shared, values=value_hooks)
        if context.position_reads_input:
            cache = layer.caches.get(POSITION_CACHE.format(name))
            context = context._replace(added_scores=context.position.read(x, context, cache))
        source = layer.source if name in self.cross_attentions else None
        cache = layer.caches.get(name)
        return getattr(self, name)(x, source=source, context=context, cache=cache)

    def _feed_forward(self, name: str, tokens: Tokens, report: Report, x: Tensor) -> Tensor:
        x, ffn_report = getattr(self, name)(x, tokens)
        add(report, ffn_report, name)
        return x

    def _total(self, names: Sequence[str], layer: LayerInput, outputs: Sequence[Tensor]) -> Tensor:
        """The sum of a group's outputs, which its placement adds to the residual stream."""
        return reduce(torch.add, map(partial(self._branch_output, layer), names, outputs))

    def _branch_output(self, layer: LayerInput, name: str, h: Tensor) -> Tensor:
        """Applies dropout, the extras' hook `added` and the multiplier to a sublayer's output."""
        if self.dropout:
            h = F.dropout(h, self.dropout, self.training)
        for key, extra in self.extras.items():
            h = extra.added(name, h, layer.extras[key])
        factor = self.multipliers[name]
        return h if factor == 1.0 else h * factor

    def attentions(self) -> dict[str, Attention]:
        """Name -> attention, in the order of the block."""
        return {name: getattr(self, name) for name in self.group_of}
