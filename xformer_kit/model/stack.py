"""A stack: blocks over one residual stream, with the positions, masks and kernels they share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from xformer_kit.extra import Extra, ExtraInput
from xformer_kit.kernel import Kernel
from xformer_kit.model.block import Block, LayerInput, Memory
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.report import Report, add
from xformer_kit.model.stack_cache import append
from xformer_kit.model.tokens import AttentionContext, Tokens
from xformer_kit.placement import Placement, State
from xformer_kit.position import Position
from xformer_kit.registry import config_error

if TYPE_CHECKING:
    from xformer_kit.plan import StackPlan

Memories = Mapping[str, Mapping[str, Tensor]]  # extra -> what its hooks returned


class Stack(nn.Module):
    """Blocks, called `0`, `1`, ...; `position` holds the positions that they use; `norm` is the
    final norm.

    Layers may share a block, which is owned once and called several times. Caches are one for each
    layer.
    """

    norm: nn.Module

    def __init__(
        self,
        plan: "StackPlan",
        position: Mapping[str, Position],
        kernels: Mapping[str, Kernel],
        blocks: Sequence[Block],
        placement: type[Placement],
        norm: nn.Module,
        embed_norm: nn.Module,
        project: nn.Module,
        extras: Mapping[str, Extra],
    ):
        super().__init__()
        self.position = nn.ModuleDict(position)
        self.kernels = dict(kernels)
        self.groups = plan.attention.groups
        self.order = plan.calls
        for at, block in enumerate(blocks):
            self.add_module(str(at), block)
        self.placement = placement
        self.streams = placement.streams(plan.placement)
        self.norm = norm
        self.embed_norm = embed_norm
        self.project = project
        self.extra = nn.ModuleDict(extras)
        self.max_len = plan.max_len
        self.hooks = {name: place.enters for name, place in position.items()}
        # Blocks of a kind share one graph when they are compiled.
        self.kinds = len({(block.variant, *block.extras) for block in blocks})
        self.reach, self.source_reach = (self._reach(cross) for cross in (False, True))
        self.observers: list[Callable[[int, State], None]] = []  # called after each layer
        self.breaks = plan.breaks
        self.cross_breaks = plan.cross_breaks

    @property
    def longest(self) -> int | None:
        """The longest sequence that its positions and attentions support; None if unlimited."""
        positions: Any = self.position.values()
        return self.max_len if any(p.bounded for p in positions) else self.reach

    def _reach(self, cross: bool) -> int | None:
        """The longest (source) sequence that its attentions support; None if unlimited."""
        bounded = any(
            attention.bounded
            for block in self.blocks
            for name, attention in block.attentions().items()
            if (name in block.crosses) == cross
        )
        return self.max_len if bounded else None

    def embedded(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Embeddings (b, t, embed_dim) with the base position, if that is added to them, a norm,
        and the map to (b, t, dim).
        """
        if "base" in self.position:
            x = self.position["base"].embed(x, tokens)  # type: ignore[operator]
        return self.project(self.embed_norm(x))

    @property
    def sees_prefix(self) -> bool:
        """Whether some attention sees the tokens of a prefix whole."""
        return any(group.mask.sees_prefix for group in self.groups if not group.cross)

    @property
    def blocks(self) -> list[Block]:
        return [self._modules[str(at)] for at in range(max(self.order) + 1)]  # type: ignore[misc]

    @property
    def named_blocks(self) -> dict[str, Block]:
        """All blocks, also those of extras: name in the stack -> block."""
        return {name: module for name, module in self.named_modules() if isinstance(module, Block)}

    @property
    def calls(self) -> list[Block]:
        """The block of each layer; layers may share one."""
        return [self._modules[str(at)] for at in self.order]  # type: ignore[misc]

    def refuse(self, tokens: Tokens, breaks: Mapping[str, str]) -> None:
        """Raises ConfigError for tokens that need a law which a component breaks."""
        needs = (
            ("documents", "document", "one document per row"),
            ("padding", "real", "rows of one length"),
        )
        for law, field, way in needs:
            if law in breaks and getattr(tokens, field) is not None:
                raise config_error(
                    field, breaks[law], fix=f"Give {way}, or choose another component."
                )

    def contexts(
        self, query: Tokens, key: Tokens, source: Tokens | None, dtype: torch.dtype
    ) -> list[AttentionContext]:
        """One context for each attention group, with the tables of position and kernel."""
        return [self._context(group, query, key, source, dtype) for group in self.groups]

    def _context(
        self, group, query: Tokens, key: Tokens, source, dtype: torch.dtype
    ) -> AttentionContext:
        position: Position = self.position[group.position]  # type: ignore[assignment]
        kernel, hooks = self.kernels[group.kernel], self.hooks[group.position]
        if group.cross:  # positions are compared, not slots, which padding and packing move
            query, key = (tokens._replace(slot=tokens.position) for tokens in (query, source))
            tables = position.begin(query, key)
        else:
            tables = position.begin(query, query, cached=key.length - query.length)
        context = AttentionContext(
            query,
            key,
            group.mask,
            tables,
            scored="scores" in hooks,
            reads=type(position).read is not Position.read,
            gain=position.score_gain(),
            cross=group.cross,
        )
        prepared = kernel.prepare(context, group.heads, "bias" in hooks, dtype)
        return context._replace(prepared=prepared)

    def forward(
        self,
        x: Tensor,
        tokens: Tokens,
        past: GenerationCache | None = None,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
        further: bool = False,
    ) -> tuple[Tensor, Report]:
        """x (b, t, dim) -> (b, t, dim) and the reports of all blocks; appends `tokens` to `past`.

        With `further` (n, b, t, dim): the same, and then those from which extras predict more
        tokens.
        """
        if self.breaks:
            self.refuse(tokens, self.breaks)
            if source_tokens is not None:
                self.refuse(source_tokens, self.cross_breaks)
        key = tokens if past is None else append(self, past, tokens)
        contexts = self.contexts(tokens, key, source_tokens, x.dtype)
        inputs = self._begin(tokens, key, past)
        begun = {name: layer.memory for name, layer in inputs.items()}
        for name, extra in self._extras():
            x = extra.embed(x, inputs[name])
        report: Report = {}
        memory: Memory = {}
        state = self.placement.start(x, self.streams)
        for depth, block in enumerate(self.calls):
            # By sublayer: an index into all contexts would give each layer a graph of its own.
            at = {
                name: contexts[group]._replace(depth=depth)
                for name, group in block.group_of.items()
            }
            caches = {} if past is None else past.caches[depth]
            state, inputs, in_block = self._before(state, inputs, begun, depth)
            layer = LayerInput(at, tokens, source, caches, memory, in_block)
            trunk = state, layer
            state, of_block, memory = block(state, layer)
            add(report, of_block, str(self.order[depth]))
            state, inputs = self._after(state, inputs)
            for observe in self.observers:
                observe(depth, state)
        hidden = self._finished(state, inputs)
        if not further:
            return hidden, report
        # They come last, so that the draws of dropout before them stay the same.
        states = self._further(*trunk, inputs, report)
        return torch.stack([hidden, *(self._finished(state, inputs) for state in states)]), report

    def _extras(self) -> Iterator[tuple[str, Extra]]:
        yield from self.extra.items()  # type: ignore[misc]

    def _begin(
        self, tokens: Tokens, key: Tokens, past: GenerationCache | None
    ) -> dict[str, ExtraInput]:
        """The extras' inputs with what their `begin` returned."""
        inputs = {}
        for name, extra in self._extras():
            cache = None if past is None else past.extra.get(name, {})
            layer = ExtraInput(tokens, key, placement=self.placement, cache=cache)
            inputs[name] = layer._replace(memory=extra.begin(layer))
        return inputs

    def _before(self, state: State, inputs: dict[str, ExtraInput], begun: Memories, depth: int):
        """The state that enters a layer, the extras' inputs in the stack, and those in the block:
        `begun`, what `begin` returned, and what `before_layer` did.
        """
        in_block = {}
        inputs = {name: layer._replace(depth=depth) for name, layer in inputs.items()}
        for name, extra in self._extras():
            state, added = extra.before_layer(state, inputs[name])
            in_block[name] = inputs[name]._replace(memory={**begun[name], **added})
            inputs[name] = inputs[name]._replace(memory={**inputs[name].memory, **added})
        return state, inputs, in_block

    def _after(self, state: State, inputs: dict[str, ExtraInput]):
        for name, extra in self._extras():
            state, added = extra.after_layer(state, inputs[name])
            inputs[name] = inputs[name]._replace(memory={**inputs[name].memory, **added})
        return state, inputs

    def _further(
        self, state: State, last: LayerInput, inputs: Mapping[str, ExtraInput], report: Report
    ) -> Iterator[State]:
        """The states from which extras predict more tokens; adds to the report."""
        last = last._replace(caches={})
        for name, extra in self._extras():
            for at, (found, more) in extra.further(state, last, inputs[name]).items():
                add(report, more, f"extra.{name}.{at}")
                yield found

    def _finished(self, state: State, inputs: Mapping[str, ExtraInput]) -> Tensor:
        for name, extra in self._extras():
            state = extra.final(state, inputs[name])
        return self.placement.finish(state, self.norm)

    def stale(self, past: GenerationCache, new: int) -> bool:
        """Whether what `past` holds is wrong with `new` more tokens, so that all must be computed
        again.
        """
        if past.tokens is None:
            return False
        held, total = past.tokens, past.length + new
        positions: Any = self.position.values()
        return past.unread > 0 or any(position.stale(held, total) for position in positions)
