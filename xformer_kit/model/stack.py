"""A stack: blocks over one residual stream, with the positions, masks and kernels they share."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.extra import Chosen, Extra
from xformer_kit.kernel import Kernel
from xformer_kit.model.block import Block, BlockInput, CrossLayerState
from xformer_kit.model.chosen_tokens import chosen_tokens, run_on_chosen
from xformer_kit.model.front_tokens import WithFront, with_front
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.replaced import check_block, replace_block
from xformer_kit.model.stack_extras import StackExtras
from xformer_kit.placement import Placement, State
from xformer_kit.position import Position
from xformer_kit.registry import config_error
from xformer_kit.tensors import Info, SubmoduleInfo, hidden
from xformer_kit.tensors.report import Report, add
from xformer_kit.tensors.tokens import AttentionContext, Tokens, has_gap, order_without_gaps

if TYPE_CHECKING:
    from xformer_kit.plan import AttentionGroup, StackPlan

# The bands of masks that depend only on the order of the tokens.
ORDER_ONLY = (math.inf, math.inf), (math.inf, 0)


class Stack(nn.Module):
    """A stack of blocks, with the position encodings, kernels and extras that they share.

    Blocks are modules named `0`, `1`, ... Layers may share a block: it is stored once and called
    several times, with one cache per layer. `norm` is the final norm; `embed_norm` and `project`
    are applied by `prepare_embeddings`, which is called before `forward`. `placement` is the class
    that splits the embeddings into the tensors of the residual stream, and merges them before the
    final norm.
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
        self.attention_groups = plan.attention.groups
        self.block_index = plan.block_index  # index of the block that each layer calls
        self.loops = plan.loops  # times that the layers are repeated
        self.train_loops = plan.train_loops  # least and most of them in training
        for at, block in enumerate(blocks):
            self.add_module(str(at), block)
        self.placement = placement
        # number of tensors of the residual stream; if each group adds one, a word for them
        self.streams = placement.streams(plan.placement)
        self.norm = norm
        self.embed_norm = embed_norm
        self.project = project
        self.map_first = plan.map_first  # whether `project` comes before positions and norm
        self.parameter_info = self._parameter_info()
        self.extra = nn.ModuleDict(extras)
        # number of tokens that extras put in front of a text
        self.num_front = sum(extra.front_tokens for extra in extras.values())
        self.max_len = plan.max_len
        # where a position encoding acts: rotate, bias, scores, ...
        self.position_enters = {name: encoding.enters for name, encoding in position.items()}
        self.max_attention_len = self._attention_limit(cross=False)
        self.max_source_len = self._attention_limit(cross=True)
        self.observers: list[Callable[[int, State], None]] = []  # called after each layer
        # Whether a mask depends on more than the order of the tokens, such as a window.
        self.measures_distances = any(
            not group.cross and group.mask.band() not in ORDER_ONLY
            for group in plan.attention.groups
        )
        # law, such as documents or padding -> why a component of the stack breaks it
        self.breaks = plan.breaks
        # the same of cross attentions, for the source's tokens
        self.cross_breaks = plan.cross_breaks

    def _parameter_info(self) -> dict[str, Info]:
        """Descriptions of the embeddings' norm and projection, and names of axes in norms and
        positions.
        """
        mapped_last = isinstance(self.project, nn.Linear) and not self.map_first
        embedded = "embed_dim" if mapped_last else "dim"
        positions: Any = self.position
        return {
            "norm": SubmoduleInfo({"normalised": "dim"}),
            "embed_norm": SubmoduleInfo({"normalised": embedded}),
            "project": hidden("dim", "embed_dim"),
            **{
                f"position.{name}": SubmoduleInfo({"dim": embedded})
                for name, encoding in positions.items()
                if "embed" in encoding.enters
            },
        }

    @property
    def num_block_kinds(self) -> int:
        """Number of kinds of blocks. Those of one kind share one graph when they are compiled."""
        extras: Any = self.extra.values()
        depths = map(self.block_index.index, range(len(self.blocks)))
        kinds = zip(self.blocks, depths, strict=True)
        return len(
            {(b.variant, *b.extras, *(e.chooses(depth) for e in extras)) for b, depth in kinds}
        )

    @property
    def max_seq_len(self) -> int | None:
        """Longest sequence that its positions and attentions support; None if unlimited."""
        positions: Any = self.position.values()
        return self.max_len if any(p.bounded for p in positions) else self.max_attention_len

    def _attention_limit(self, cross: bool) -> int | None:
        """Longest sequence that its attentions support, with `cross` the longest source; None if
        unlimited.
        """
        bounded = any(
            attention.bounded
            for block in self.blocks
            for name, attention in block.attentions().items()
            if (name in block.cross_attentions) == cross
        )
        return self.max_len if bounded else None

    def prepare_embeddings(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Adds the position encoding to embeddings (b, t, embed_dim) if it is one of embeddings
        (learned, sinusoidal), applies their norm, and projects them to (b, t, dim), first if
        `map_first`.
        """
        if self.map_first:
            x = self.project(x)
        if "base" in self.position:  # that of layers without one of their own
            x = self.position["base"].embed(x, tokens)  # type: ignore[operator]
        x = self.embed_norm(x)
        return x if self.map_first else self.project(x)

    def order_without_gaps(self, tokens: Tokens) -> Tensor | None:
        """The order of tokens in which no padding is between real ones, if a mask measures
        distances: kernels and caches then count slots. None if they are in such an order. Padding
        after the tokens that extras put in front is between real ones.
        """
        if not self.measures_distances or tokens.real is None:
            return None
        order = order_without_gaps(self._after_front(tokens.real))
        return None if order is None else order[:, self.num_front :] - self.num_front

    def _after_front(self, real: Tensor) -> Tensor:
        """`real` (b, t) of a text and of the tokens in front of it, (b, num_front + t)."""
        return F.pad(real, (self.num_front, 0), value=True)

    @property
    def sees_prefix(self) -> bool:
        """Whether some mask lets the tokens of a prefix attend to later ones of it."""
        return any(group.mask.sees_prefix for group in self.attention_groups if not group.cross)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Each block once."""
        count = max(self.block_index) + 1
        return tuple(self._modules[str(at)] for at in range(count))  # type: ignore[misc]

    @property
    def named_blocks(self) -> dict[str, Block]:
        """Name in the stack -> block, including the blocks of extras."""
        return {name: module for name, module in self.named_modules() if isinstance(module, Block)}

    @property
    def layers(self) -> tuple[Block, ...]:
        """The block of each layer; layers may share one."""
        return tuple(self._modules[str(at)] for at in self.block_index)  # type: ignore[misc]

    def __len__(self) -> int:
        """Number of layers."""
        return len(self.block_index)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.layers)

    def __getitem__(self, index: int) -> Block:
        """The block of a layer."""
        return self.layers[index]

    def __setitem__(self, index: int, block: Block) -> None:
        """Replaces the block of a layer, and of the layers that share it. Raises ConfigError for
        one that its stack cannot call.
        """
        check_block(index, self[index], block, self.blocks)
        replace_block(self, str(self.block_index[index]), self[index], block)

    def check_tokens(self, tokens: Tokens, breaks: Mapping[str, str]) -> None:
        """Raises ConfigError for tokens with documents or padding that a component of the stack
        does not support.
        """
        requirements = (  # law, field of Tokens, what is needed instead
            ("documents", "document", "one document per row"),
            ("padding", "real", "rows of one length"),
        )
        for law, field, required in requirements:
            if law in breaks and getattr(tokens, field) is not None:
                raise config_error(
                    field, breaks[law], fix=f"Give {required}, or choose another component."
                )

    def contexts(
        self,
        query: Tokens,
        key: Tokens,
        cross: tuple[Tokens, Tokens | None],
        dtype: torch.dtype,
    ) -> list[AttentionContext]:
        """One context per attention group, with the tables of its position and kernel. `key`
        includes the cached tokens. cross: queries and keys of cross attentions, the target's and
        the source's tokens with documents of equal numbers.
        """
        return [
            self._context(group, cross if group.cross else (query, key), dtype)
            for group in self.attention_groups
        ]

    def _context(
        self, group: "AttentionGroup", tokens: tuple[Tokens, Any], dtype: torch.dtype
    ) -> AttentionContext:
        """The context of an attention group. tokens: queries and keys."""
        query, key = tokens
        position: Position = self.position[group.position]  # type: ignore[assignment]
        kernel, enters = self.kernels[group.kernel], self.position_enters[group.position]
        if group.cross:
            # A slot is an index in a row. Rows of source and target have no common index, so that
            # their slots are positions.
            query, key = (tokens._replace(slot=tokens.position) for tokens in (query, key))
            tables = position.prepare(query, key)
        else:
            tables = position.prepare(query, query, cached=key.length - query.length)
        context = AttentionContext(
            query,
            key,
            group.mask,
            tables,
            scored="scores" in enters,
            position_reads_input=type(position).read is not Position.read,
            gain=position.score_gain(),
            cross=group.cross,
        )
        prepared = kernel.prepare(context, group.heads, "bias" in enters, dtype)
        fields: Any = (*context[:6], prepared, *context[7:])  # `_replace` takes 20 calls
        return AttentionContext(*fields)

    def forward(
        self,
        x: Tensor,
        tokens: Tokens,
        cache: GenerationCache | None = None,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
        multi_token: bool = False,
    ) -> tuple[Tensor, Report]:
        """Returns hidden states (b, t, dim) for x (b, t, dim) of `prepare_embeddings`, and the
        reports of all blocks. Appends `tokens` to `cache`.

        source: the encoder's output (b, s, dim), for cross attentions.
        multi_token: returns (1 + n, b, t, dim), then also the n states from which extras predict
            further tokens.
        """
        self.check_tokens(tokens, self.breaks)
        if source_tokens is not None:
            self.check_tokens(source_tokens, self.cross_breaks)
        key = tokens if cache is None else cache.append(tokens, self.attention_groups, self.breaks)
        x, tokens, key, text_of = self._with_front(x, tokens, key, cache is not None)
        cross = tokens, source_tokens
        tokens, key = _counted_documents(tokens, key)
        contexts = self.contexts(tokens, key, cross, x.dtype)
        extras = StackExtras(self.extra, tokens, key, cache, self.placement)
        report: Report = {}
        cross_layer: CrossLayerState = {}
        contexts_of_block: dict[Any, dict[str, AttentionContext]] = {}
        state = self.placement.start(extras.embed(x), self.streams)
        for depth, block in enumerate(self._layers_of_pass()):
            own = _contexts_of(block, contexts, contexts_of_block)
            caches = {} if cache is None else cache.caches[depth]
            state, extra_inputs = extras.before_layer(state, depth) if extras.any else (state, {})
            layer = BlockInput(own, tokens, key, source, caches, cross_layer, extra_inputs, depth)
            last_input = state, layer
            if not extras.any or (chosen := extras.chosen(state, depth)) is None:
                state, block_report, cross_layer = block(state, layer)
            else:
                contexts_of = partial(self._chosen_contexts, cross, x.dtype)
                state, block_report = run_on_chosen(block, state, layer, chosen, contexts_of)
            add(report, block_report, str(self.block_index[depth]))
            state = extras.after_layer(state) if extras.any else state
            for observe in self.observers:
                observe(depth, state)
        extras.add_reports(report)
        # States of further tokens are last, so that they do not change the layers' dropout masks.
        states = extras.multi_token_states(*last_input, report) if multi_token else ()
        finished = [self.placement.finish(extras.final(s), self.norm) for s in (state, *states)]
        hidden = torch.stack(finished) if multi_token else finished[0]
        return text_of(hidden), report

    def _with_front(self, x: Tensor, tokens: Tokens, key: Tokens, cached: bool) -> WithFront:
        """The tokens that extras put in front of each text, before the text."""
        if not self.num_front:
            return WithFront(x, tokens, key, lambda hidden: hidden)
        extras: Any = self.extra.values()
        front = torch.cat([extra.front() for extra in extras if extra.front_tokens])
        return with_front(x, tokens, key, front, cached)

    def _chosen_contexts(
        self,
        cross: tuple[Tokens, Tokens | None],
        dtype: torch.dtype,
        chosen: Chosen,
        layer: BlockInput,
        groups: Mapping[str, int],
    ) -> dict[str, AttentionContext]:
        """Attention of a block -> its context for the chosen queries and their keys; layer: the
        block's input of these. groups: attention -> index of its group. cross: as in `contexts`.
        """
        contexts = {}
        for name, index in groups.items():
            group, tokens = self.attention_groups[index], (layer.tokens, layer.key)
            if group.cross:
                tokens = chosen_tokens(cross[0], chosen, 0), cross[1]
            contexts[name] = self._context(group, tokens, dtype)
        return contexts

    def _layers_of_pass(self) -> tuple[Block, ...]:
        """The blocks of one forward pass: all layers, or in training those of as many loops as are
        drawn from torch's generator of the CPU.
        """
        low, high = self.train_loops
        if not self.training or low == self.loops:
            return self.layers
        loops = low if low == high else int(torch.randint(low, high + 1, ()))
        return self.layers[: loops * len(self.block_index) // self.loops]

    def needs_recompute(self, cache: GenerationCache, tokens: Tokens) -> bool:
        """Whether all tokens must be recomputed for a sequence that is longer by `tokens`: the keys
        in `cache` are invalid at its length, e.g. because rotary frequencies depend on it; there is
        padding between tokens whose distance a mask measures; or the newest tokens are in no cache
        after such a step.
        """
        cached = cache.tokens
        # Values are read only after padding is given in a call.
        if self.measures_distances and (cache.padded_later or tokens.real is not None):
            if cached is None:  # more tokens may follow padding at the end
                real: Any = F.pad(tokens.real, (0, 1), value=True)  # type: ignore[arg-type]
            else:
                real = cached.concat(tokens).real
            if has_gap(self._after_front(real)):
                return True
        if cached is None:
            return False
        positions: Any = self.position.values()
        total = cache.length + tokens.length
        return cache.uncached > 0 or any(
            position.needs_recompute(cached, total) for position in positions
        )


def _contexts_of(
    block: Block, contexts: Sequence[AttentionContext], made: dict[Any, dict[str, AttentionContext]]
) -> dict[str, AttentionContext]:
    """Attention -> its context, from `made` if there are those of an equal block. By name, because
    torch.compile would compile a graph for each index into the list.
    """
    found = made.get(block.context_key)
    if found is None:
        found = {name: contexts[group] for name, group in block.context_key}
        made[block.context_key] = found
    return found


def _counted_documents(query: Tokens, key: Tokens) -> tuple[Tokens, Tokens]:
    """Returns the tokens of a stack, `query` the last of `key`, with documents that are counted, so
    that a number which returns after another one is another document.
    """
    if key.document is None:
        return query, key
    runs = key.document_runs()
    counted = query._replace(document=runs[:, -query.length :])
    return counted, counted if key is query else key._replace(document=runs)
