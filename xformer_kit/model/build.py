"""Builds the modules of a plan. The other files of model/ do not use registries."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from xformer_kit.attention import ATTENTIONS
from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.ffn import FFNS
from xformer_kit.ffn.activations import ACTIVATIONS
from xformer_kit.kernel import KERNELS, Flex, Kernel, SDPAOrFlex
from xformer_kit.model.block import Block
from xformer_kit.model.head import Head, LogitScaling, TiedHead, Transform
from xformer_kit.model.init_distributions import INITS
from xformer_kit.model.initial_weights import initialise
from xformer_kit.model.lora import add_adapters
from xformer_kit.model.model import Model
from xformer_kit.model.recomputed import checkpoint_activations
from xformer_kit.model.stack import Stack
from xformer_kit.norm import NORMS
from xformer_kit.placement import PLACEMENTS
from xformer_kit.plan import BlockPlan, ModelPlan, Node, StackPlan, key_exchanges, model_plan
from xformer_kit.plan.parametrization import width_ratio
from xformer_kit.position import POSITIONS, Position
from xformer_kit.registry import config_error


class Part(NamedTuple):
    """What is built with values, of a model whose other tensors are on the meta device.

    blocks: (stack, layer) of blocks. rest: whether all modules outside of blocks are.
    """

    blocks: Collection[tuple[str, int]] = ()
    rest: bool = False


def build_model(
    config: Node,
    vocab_size: int,
    source_vocab_size: int | None = None,
    initial_weights: bool = True,
    part: Part | None = None,
) -> Model:
    """Returns the model of a valid config.

    source_vocab_size: of the source's tokens, if it differs. initial_weights: whether weights are
    drawn, except on the meta device. part: the part of the model that has values, the same as in
    the whole model; None is all. Raises ConfigError if source and target share embeddings and their
    vocabularies differ.
    """
    plan = model_plan(config)
    with _device(part, part is not None and part.rest):
        model = _undrawn(plan, vocab_size, source_vocab_size, part)
    with _device(part, True):
        if initial_weights and (part or not model.embed.weight.is_meta):
            _draw_weights(model, plan)
        if (lora := config.get("lora") or {}).get("rank"):
            add_adapters(model, lora, plan.seed)
    checkpoint_activations(model, plan.options["checkpoint_activations"])
    return model


def model_parts(model: Model, count: int = 8) -> Iterator[Part]:
    """Yields parts that together are a model: its blocks in at most `count` parts, and the rest."""
    stacks: dict[str, Any] = {name: model.get_submodule(name) for name in model.names}
    blocks = [
        (name, stack.block_index.index(number))
        for name, stack in stacks.items()
        for number in range(len(stack.blocks))
    ]
    size = math.ceil(len(blocks) / count)
    for start in range(0, len(blocks), size):
        yield Part(blocks[start : start + size])
    yield Part(rest=True)


def _device(part: Part | None, has_values: bool) -> AbstractContextManager[Any]:
    """A context in which tensors are on the CPU or on the meta device; of a whole model, where the
    caller has them.
    """
    if part is None:
        return nullcontext()
    return torch.device("cpu" if has_values else "meta")


def _undrawn(
    plan: ModelPlan, vocab_size: int, source_vocab_size: int | None, part: Part | None
) -> Model:
    """The model without initial weights."""
    source_size, two_stacks = source_vocab_size or vocab_size, len(plan.stacks) > 1
    options, shared = plan.options, plan.options["share_embeddings"]
    if two_stacks and shared and source_size != vocab_size:
        raise config_error(
            "model.share_embeddings",
            "needs one vocabulary",
            got=f"{vocab_size} tokens of the target and {source_size} of the source",
            fix="Set model.share_embeddings=false, or tokenizer.shared=true.",
        )
    channels, multiple = plan.output.embed_dim, options["vocab_multiple"]
    rows, source_rows = (-(-size // multiple) * multiple for size in (vocab_size, source_size))
    types, scale = options["token_types"], options["embed_scale"]
    embed = _embedding(rows, channels)
    source_embed = None
    stack_rows = {stack.name: rows for stack in plan.stacks}
    if two_stacks and not shared:
        source_embed = _embedding(source_rows, channels)
        stack_rows["encoder"] = source_rows
    model = Model(
        plan.output.dim,
        vocab_size,
        source_size,
        embed,
        source_embed,
        _embedding(types, channels) if types else None,
        {stack.name: _stack(plan, stack, stack_rows[stack.name], part) for stack in plan.stacks},
        partial(_head, plan, vocab_size, rows),
        math.sqrt(channels) if scale == "sqrt_dim" else float(scale),
        options["dropout"],
    )
    model.width_ratio = width_ratio(options)
    return model


def _draw_weights(model: Model, plan: ModelPlan) -> None:
    at_base = round(plan.output.dim / model.width_ratio)  # the initialisation's dim with muP
    init = INITS.create(plan.init, dim=at_base, stacks=plan.depths)
    initialise(model, plan.seed, init)
    model.constrain()


def _embedding(rows: int, channels: int) -> nn.Embedding:
    return nn.Embedding(rows, channels, _weight=torch.empty(rows, channels))


def _head(plan: ModelPlan, vocab_size: int, rows: int, embed: nn.Embedding) -> Head:
    options, dim = plan.options, plan.output.dim
    tied = options["tie_embeddings"]
    read = plan.output.embed_dim if tied else dim  # channels that are mapped to logits
    transform: nn.Module | None = None
    if options["head_transform"]:
        norm = partial(_norm, plan.output.base.nodes["norm"], read)
        activation, bias = ACTIVATIONS[options["head_activation"]], options["head_transform_bias"]
        transform = Transform(dim, read, norm, activation, bias)
    elif read != dim:
        transform = nn.Linear(dim, read, bias=False)
    scale = dim**-0.5 if options["logit_scale"] == "per_root_dim" else options["logit_scale"]
    scaling = LogitScaling(scale, options["logit_softcap"])
    arguments = vocab_size, options["head_bias"], transform, scaling
    if tied:
        return TiedHead(embed, *arguments)
    return Head(nn.Parameter(torch.empty(rows, dim)), *arguments)


def _stack(model: ModelPlan, plan: StackPlan, vocab_size: int, part: Part | None) -> Stack:
    position = {name: _position(plan, node) for name, node in plan.attention.positions.items()}
    kernels = {name: _kernel(*kernel) for name, kernel in plan.attention.kernels.items()}
    extras = _extras(model, plan, vocab_size)
    block = partial(_block, model, plan, kernels, extras)
    blocks = []
    for depth, _ in plan.own_blocks:
        with _device(part, part is not None and (plan.name, depth) in part.blocks):
            blocks.append(block(depth, plan.block_index.count(plan.block_index[depth])))
    if plan is model.output:
        for extra in extras.values():
            extra.add_blocks(block)
    inner, dim = plan.embed_dim, plan.dim
    return Stack(
        plan,
        position,
        kernels,
        blocks,
        PLACEMENTS[plan.placement["name"]],
        _norm(plan.final_norm, dim) if plan.final_norm else nn.Identity(),
        _norm(plan.embed_norm, plan.added_dim) if plan.embed_norm else nn.Identity(),
        nn.Linear(inner, dim, not plan.map_first) if inner != dim else nn.Identity(),
        extras,
    )


def _position(plan: StackPlan, position: Any) -> Position:
    return POSITIONS.create(
        position.node,
        dim=position.dim,
        heads=position.heads,
        head_dim=position.head_dim,
        max_len=plan.max_len,
        layers=len(plan.blocks),
        stack=plan.name,
    )


def _kernel(node: Node, flex_on_cuda: bool) -> Kernel:
    kernel = KERNELS.create(node)
    return SDPAOrFlex(kernel, Flex()) if flex_on_cuda and torch.cuda.is_available() else kernel


def _extras(model: ModelPlan, plan: StackPlan, vocab_size: int) -> dict[str, Extra]:
    traits = plan.base.sublayers[0].context.attn
    arguments = {
        "dim": plan.dim,
        "layers": len(plan.blocks),
        "vocab_size": vocab_size,
        "sublayers": {
            depth: {sub.name: sub.kind for sub in block.sublayers}
            for depth, block in enumerate(plan.blocks)
        },
        "block_index": plan.block_index,
        "kv_heads": traits.kv_heads,
        "v_head_dim": traits.v_head_dim,
        "norm": partial(_norm, plan.base.nodes["norm"]),
    }
    return {
        name: EXTRAS.create({"name": name, **options}, **arguments)
        for name, options in model.extras.items()
    }


def _block(
    model: ModelPlan,
    plan: StackPlan,
    kernels: Mapping[str, Kernel],
    extras: Mapping[str, Extra],
    depth: int,
    calls: int = 0,
) -> Block:
    """The block of layer `depth`. calls: number of layers that use it, 0 for an extra's block."""
    block, group_of = plan.blocks[depth], plan.attention.group_of[plan.block_index[depth]]
    common: dict[str, Any] = {"dim": plan.dim, "depth": depth, "layers": len(plan.blocks)}
    modules, exchanges = {}, key_exchanges(plan)
    max_len = plan.max_len + sum(extra.front_tokens for extra in extras.values())
    for sub in block.sublayers:
        arguments = {**common, "norm": partial(_norm, sub.norm)}
        if sub.kind == "ffn":
            modules[sub.name] = FFNS.create(sub.component, **arguments)
            continue
        arguments["kernel"] = kernels[plan.attention.groups[group_of[sub.name]].kernel]
        arguments["exchange"] = exchanges.get((plan.block_index[depth], sub.name))
        modules[sub.name] = ATTENTIONS.create(sub.component, **arguments, max_len=max_len)
    first = plan.block_index.index(plan.block_index[depth])  # the first layer that uses the block
    layer_extras = {name: _of_layer(extra, name, first, modules) for name, extra in extras.items()}
    return Block(
        modules,
        [[sub.name for sub in group] for group in block.groups],
        _placements(model, plan, block, depth),
        group_of,
        [sub.name for sub in block.sublayers if sub.cross],
        plan.dropout,
        {sub.name: plan.multiplier * sub.multiplier for sub in block.sublayers},
        calls,
        {name: extra for name, extra in layer_extras.items() if extra is not None},
        block.variant,
    )


def _of_layer(
    extra: Extra, name: str, depth: int, sublayers: Mapping[str, nn.Module]
) -> Extra | None:
    """The module of an extra in a layer. Raises ConfigError for one that is not a module of the
    extra: a block holds no modules of extras, and its parameters would be in no optimizer.
    """
    module = extra.layer_module(depth, sublayers)
    if module is not None and all(module is not one for one in extra.modules()):
        raise config_error(
            f"extra.{name}",
            "'layer_module' returns a module that the extra does not hold, and that would not be"
            " trained",
            fix="Set self.layers[str(depth)] = module.",
        )
    return module


def _placements(model: ModelPlan, plan: StackPlan, block: BlockPlan, depth: int) -> list[Any]:
    """One placement per group of the block; `order` counts the groups of the stack."""
    last = len(plan.block_index) - 1 - plan.block_index[::-1].index(plan.block_index[depth])
    group_counts = [len(layer.groups) for layer in plan.blocks]
    before, later = sum(group_counts[:depth]), sum(group_counts[depth:last])
    return [
        PLACEMENTS.create(
            block.nodes["placement"],
            dim=plan.dim,
            depth=depth,
            layers=len(plan.blocks),
            stack=plan.name,
            stacks=model.depths,
            norm=partial(_norm, group[0].norm, plan.dim),
            kinds=[sub.kind for sub in group],
            order=order,
            latest=order + later,
            parallel=len(group),
        )
        for order, group in enumerate(block.groups, before)
    ]


def _norm(node: Node, dim: int, **options: Any) -> nn.Module:
    """A norm over `dim` channels. options: those that differ from the node's."""
    return NORMS.create({**node, **options}, dim=dim)
