"""A transformer block: sublayers, with a residual placement around each group of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import Attention
from xformer_kit.extra import Extra, ExtraInput
from xformer_kit.model.replaced import check_sublayer, without_report
from xformer_kit.model.returned import same_shape
from xformer_kit.placement import Placement, State, Sublayer, SublayerGroup
from xformer_kit.tensors.cache import Cache
from xformer_kit.tensors.report import Report, add
from xformer_kit.tensors.tokens import UNKNOWN, AttentionContext, FFNContext, Tokens, with_fields

CrossLayerState = dict[str, Tensor]  # tensors that attentions pass to later layers, by name
# Template of a cache's name: {} is the attention whose input the position reads.
POSITION_CACHE_NAME = "{}.position"


class BlockInput(NamedTuple):
    """The inputs of a block in addition to the residual stream."""

    contexts: Mapping[str, AttentionContext] = {}  # by name of the attention
    tokens: Tokens = UNKNOWN  # of this call, (b, t)
    key: Tokens = UNKNOWN  # the same after those that are cached
    source: Tensor | None = None  # the encoder's output (b, s, dim)
    # by name of the sublayer, or "<attention>.position"; empty outside generation
    caches: Mapping[str, Cache] = {}
    cross_layer_state: CrossLayerState = {}  # of the layers before it
    extras: Mapping[str, ExtraInput] = {}  # by name of the extra
    depth: int = 0  # index of the layer


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

    Attribute recomputed: calls a function so that the backward pass computes its activations again,
    see `checkpoint_activations`; None: they are kept.
    """

    recomputed: Callable[..., Any] | None = None

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
            check_sublayer(name, module, name in attention_group_of)
            self.add_module(name, module)
        self.sublayer_groups = tuple(map(tuple, sublayer_groups))
        names = map("_".join, self.sublayer_groups)
        self.placement = nn.ModuleDict(dict(zip(names, placements, strict=True)))
        self.attention_group_of = dict(attention_group_of)
        self.context_key = tuple(attention_group_of.items())  # equal for blocks with equal contexts
        # A compiled graph that reads the dictionary would depend on its values, which differ
        # between layers.
        self.attention_names = tuple(attention_group_of)
        self.cross_attentions = cross_attentions
        self.dropout = dropout
        self.multipliers = dict(multipliers)
        self.num_calls = num_calls
        self.extras = dict(extras)
        self.variant = variant

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises ConfigError for a module that cannot be called as the sublayer it replaces."""
        is_sublayer = name in self.__dict__.get("multipliers", ())
        if is_sublayer and (value is None or isinstance(value, nn.Module)):
            check_sublayer(name, value, name in self.attention_names)
        super().__setattr__(name, value)

    def forward(self, state: State, layer: BlockInput) -> tuple[State, Report, CrossLayerState]:
        """Returns the tensors of the residual stream after the block, the reports of its sublayers
        (`loss` summed, the rest by name), and the cross-layer state with what its attentions added.

        `layer.cross_layer_state` is copied first: activation checkpointing then recomputes the
        block from the same input, and FSDP may pass copies of the arguments under mixed precision.
        """
        # Caches, which a second computation would fill again, are for generation.
        if self.recomputed is None or layer.caches or not torch.is_grad_enabled():
            return self._run(state, layer)
        return self.recomputed(self._run, state, layer)

    def _run(self, state: State, layer: BlockInput) -> tuple[State, Report, CrossLayerState]:
        """`forward`, once."""
        report: Report = {}
        cross_layer_state = dict(layer.cross_layer_state)
        layer = BlockInput(*layer[:5], cross_layer_state, *layer[6:])
        for names, (group, placement) in zip(
            self.sublayer_groups, self.placement.items(), strict=True
        ):
            f = SublayerGroup([SublayerCall(self, name, layer, report) for name in names], {})
            state = placement(state, f, layer.tokens)  # e.g. x + f(norm(x))
            if f.report:
                add(report, f.report, f"placement.{group}")
        return state, report, cross_layer_state

    def attentions(self) -> dict[str, Attention]:
        """Name -> attention, in the order of the block."""
        return {name: getattr(self, name) for name in self.attention_names}

    def sublayers(self) -> dict[str, Any]:
        """Name -> sublayer, in the order of the block."""
        return {name: getattr(self, name) for group in self.sublayer_groups for name in group}


@dataclass(eq=False)
class SublayerCall(Sublayer):
    """A sublayer in one call of its block: a function of its input (b, t, dim) only."""

    block: Block
    name: str
    layer: BlockInput
    report: Report  # of the block; gets the report of a feed-forward network

    def __call__(self, x: Tensor) -> Tensor:
        """The output. `wrap` of each extra may change the input and the output."""
        is_attention = self.name in self.block.attention_names
        run: Callable[[Tensor], Tensor] = self.attend if is_attention else self.feed_forward
        if self.block.extras:
            for key, extra in self.block.extras.items():
                run = extra.wrap(self.name, run, self.layer.extras[key])
        h = run(x)
        if isinstance(h, Tensor) and h.shape == x.shape:
            return h
        return same_shape(h, x, self.name, "forward")

    def attend(self, x: Tensor) -> Tensor:
        """Applies the attention, with its context, cache and source. The context gets the scores
        that the position computes from x.
        """
        layer, name = self.layer, self.name
        hooks = (self.values, self.projected) if self.block.extras else (None, None)
        context = layer.contexts[name].in_block(layer.depth, layer.cross_layer_state, *hooks)
        if context.position_reads_input:
            cache = layer.caches.get(POSITION_CACHE_NAME.format(name))
            context = with_fields(context, added_scores=context.position.read(x, context, cache))
        source = layer.source if name in self.block.cross_attentions else None
        cache = layer.caches.get(name)
        return getattr(self.block, name)(x, source=source, context=context, cache=cache)

    def values(self, v: Tensor, x: Tensor) -> Tensor:
        """Values (b, kv, t, e) of the attention after the extras' hooks `values`."""
        state = self.layer.cross_layer_state
        for key, extra in self.block.extras.items():
            layer = with_fields(self.layer.extras[key], cross_layer_state=state)
            v = same_shape(extra.values(v, x, layer), v, f"extra.{key}", "values")
        return v

    def projected(self, name: str, y: Tensor) -> Tensor:
        """The output y (b, t, channels) of a linear map after the extras' hooks `projected`."""
        for key, extra in self.block.extras.items():
            changed = extra.projected(self.name, name, y, self.layer.extras[key])
            y = same_shape(changed, y, f"extra.{key}", "projected")
        return y

    def feed_forward(self, x: Tensor) -> Tensor:
        """Applies the feed-forward network."""
        layer = self.layer
        projected = self.projected if self.block.extras else None
        context = FFNContext(layer.tokens, layer.key, layer.caches.get(self.name), projected)
        result = getattr(self.block, self.name)(x, context)
        if not isinstance(result, tuple) or len(result) != 2:
            raise without_report(self.name, result)
        output, report = result
        if report:
            add(self.report, report, self.name)
        return output

    def added(self, h: Tensor) -> Tensor:
        """What the output h adds to the stream: h after dropout, the extras' hook
        `sublayer_output` and the multiplier.
        """
        block = self.block
        if block.dropout:
            h = F.dropout(h, block.dropout, block.training)
        if block.extras:
            for key, extra in block.extras.items():
                changed = extra.sublayer_output(self.name, h, self.layer.extras[key])
                h = same_shape(changed, h, f"extra.{key}", "sublayer_output")
        factor = block.multipliers[self.name]
        return h if factor == 1.0 else h * factor
