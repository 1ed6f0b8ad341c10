"""A transformer block: sublayers, with a residual placement around each group of them."""

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import Attention
from xformer_kit.extra import Extra, ExtraInput
from xformer_kit.placement import Placement, State, Sublayer
from xformer_kit.tensors.cache import Cache
from xformer_kit.tensors.report import Report, add
from xformer_kit.tensors.tokens import UNKNOWN, AttentionContext, Tokens, with_fields

CrossLayerState = dict[str, Tensor]  # tensors that attentions pass to later layers, by name
# Template of a cache's name: {} is the attention whose input the position reads.
POSITION_CACHE_NAME = "{}.position"


class BlockInput(NamedTuple):
    """The inputs of a block in addition to the residual stream."""

    contexts: Mapping[str, AttentionContext] = {}  # by name of the attention
    tokens: Tokens = UNKNOWN
    source: Tensor | None = None  # (b, s, dim)
    # by sublayer, or by POSITION_CACHE_NAME; empty outside generation
    caches: Mapping[str, Cache] = {}
    cross_layer_state: CrossLayerState = {}
    extras: Mapping[str, ExtraInput] = {}


class Block(nn.Module):
    """Groups of sublayers, applied one after another, with one placement around each group. The
    sublayers of a group run in parallel on the same input.

    sublayers: name -> module.
    sublayer_groups: the names of the sublayers in each group.
    placements: the residual placement of each group.
    attention_group_of: name of an attention -> index of its attention group. The attentions of a
        stack that have the same mask, position and kernel are a group and share a context.
    cross_attentions: names of the attentions whose keys are the encoder's output.
    dropout: probability, on the output of each sublayer.
    multipliers: name of a sublayer -> factor on its output.
    num_calls: number of layers that use this block.
    extras: name -> module of an extra, a feature next to the sublayers; registered by the stack.
    variant: "base", or the name of the config's variant that this block has.
    """

    def __init__(
        self,
        sublayers: Mapping[str, nn.Module],
        sublayer_groups: Sequence[Sequence[str]],
        placements: Sequence[Placement],
        attention_group_of: Mapping[str, int],
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
        self.sublayer_groups = tuple(map(tuple, sublayer_groups))
        names = map("_".join, self.sublayer_groups)
        self.placement = nn.ModuleDict(dict(zip(names, placements, strict=True)))
        self.attention_group_of = dict(attention_group_of)
        # A compiled graph that reads the dictionary would depend on its values, which differ
        # between layers.
        self.attention_names = tuple(attention_group_of)
        self.cross_attentions = cross_attentions
        self.dropout = dropout
        self.multipliers = dict(multipliers)
        self.num_calls = num_calls
        self.extras = dict(extras)
        self.variant = variant

    def forward(self, state: State, layer: BlockInput) -> tuple[State, Report, CrossLayerState]:
        """Returns the tensors of the residual stream after the block, the reports of its sublayers
        (`loss` summed, the rest by name), and the cross-layer state with what its attentions added.

        `layer.cross_layer_state` is copied first: activation checkpointing then recomputes the
        block from the same input, and FSDP may pass copies of the arguments under mixed precision.
        """
        report: Report = {}
        cross_layer_state = dict(layer.cross_layer_state)
        layer = with_fields(layer, cross_layer_state=cross_layer_state)
        for names, placement in zip(self.sublayer_groups, self.placement.values(), strict=True):
            branches = [self._branch(name, layer, report) for name in names]
            total = partial(self._total, names, layer)
            state = placement(state, branches, total, layer.tokens)
        return state, report, cross_layer_state

    def _branch(self, name: str, layer: BlockInput, report: Report) -> Sublayer:
        """A sublayer as a function of its input only. `wrap` of each extra may change its input and
        output.
        """
        if name in self.attention_names:
            branch: Sublayer = partial(self._attend, name, layer)
        else:
            branch = partial(self._feed_forward, name, layer.tokens, report)
        for key, extra in self.extras.items():
            branch = extra.wrap(name, branch, layer.extras[key])
        return branch

    def _attend(self, name: str, layer: BlockInput, x: Tensor) -> Tensor:
        """Applies an attention, with its context, cache and source, to its input (b, t, dim). The
        context gets the extras' hooks `values` and the scores that the position computes from x.
        """
        cross_layer_state = layer.cross_layer_state
        value_hooks = [
            partial(
                extra.values,
                layer=with_fields(layer.extras[key], cross_layer_state=cross_layer_state),
            )
            for key, extra in self.extras.items()
        ]
        context = with_fields(
            layer.contexts[name], cross_layer_state=cross_layer_state, values=value_hooks
        )
        if context.position_reads_input:
            cache = layer.caches.get(POSITION_CACHE_NAME.format(name))
            added_scores = context.position.read(x, context, cache)
            context = with_fields(context, added_scores=added_scores)
        source = layer.source if name in self.cross_attentions else None
        cache = layer.caches.get(name)
        return getattr(self, name)(x, source=source, context=context, cache=cache)

    def _feed_forward(self, name: str, tokens: Tokens, report: Report, x: Tensor) -> Tensor:
        output, ffn_report = getattr(self, name)(x, tokens)
        add(report, ffn_report, name)
        return output

    def _total(self, names: Sequence[str], layer: BlockInput, outputs: Sequence[Tensor]) -> Tensor:
        """The sum of what a group's sublayers add to the residual stream, see `_to_add`."""
        return reduce(torch.add, map(partial(self._to_add, layer), names, outputs))

    def _to_add(self, layer: BlockInput, name: str, h: Tensor) -> Tensor:
        """What a sublayer adds to the stream: its output h after dropout, the extras' hook `added`
        and the multiplier.
        """
        if self.dropout:
            h = F.dropout(h, self.dropout, self.training)
        for key, extra in self.extras.items():
            h = extra.added(name, h, layer.extras[key])
        factor = self.multipliers[name]
        return h if factor == 1.0 else h * factor

    def attentions(self) -> dict[str, Attention]:
        """Name -> attention, in the order of the block."""
        return {name: getattr(self, name) for name in self.attention_names}
