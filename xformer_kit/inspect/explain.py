"""Which kernel computes an attention, how, why not a faster one, and what that costs in memory?

Plain data, from a valid config alone, for a step of its training: nothing is allocated.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from xformer_kit.attention import ATTENTIONS
from xformer_kit.config.size import ensure_countable
from xformer_kit.inspect import memory
from xformer_kit.inspect.tree import ranges
from xformer_kit.kernel import KERNELS, Kernel, cannot_train
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.model.stack import Stack
from xformer_kit.model.tokens import AttentionContext, Tokens
from xformer_kit.plan import StackPlan, SublayerPlan, stacks
from xformer_kit.registry import Context, Node

Item = TypeVar("Item")


class KernelRun(NamedTuple):
    """How a kernel runs in a step of training, and its memory in bytes."""

    how: str
    tables: int  # of masks and biases, which layers share that look alike
    kept: int  # of scores that each layer keeps for the gradient, at least


class AttentionExplanation(NamedTuple):
    """Some attentions that run alike."""

    where: str
    layers: int
    component: str
    mask: str
    position: str
    kernel: str
    run: KernelRun | None  # None: not known, or the component needs no kernel
    faster: tuple[tuple[str, str], ...]  # each kernel that is faster, and why it is not taken


class Explanation(NamedTuple):
    rows: int  # sequences of a micro-batch on one device
    seq_len: int  # tokens
    precision: str
    device: str
    documents: bool  # whether texts are packed and kept apart
    attentions: list[AttentionExplanation]


def explain(config: Node, vocab_size: int = 256) -> Explanation:
    """All attentions of a valid config, in the order of their layers. Raises ConfigError where no
    machine holds the model.
    """
    ensure_countable(config)
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    rows, seq_len = memory.micro_batch(config)[0], config["data"]["seq_len"]
    documents = bool(config["data"].get("documents"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = [
        item._replace(where=f"{plan.name}.{ranges(depths)}.{item.where}", layers=len(depths))
        for plan in stacks(config)
        for item, depths in group_equal(attentions(config, plan, model, rows, documents)).items()
    ]
    return Explanation(rows, seq_len, memory.precision(config), device, documents, found)


def attentions(
    config: Any, plan: StackPlan, model: Model, rows: int = 1, documents: bool = False
) -> Iterator[tuple[int, AttentionExplanation]]:
    """(layer, attention) of a stack, in batches of so many rows; `where` is only the sublayer."""
    stack: Any = model.get_submodule(plan.name)
    contexts = contexts_of(config, stack, rows, documents)
    for depth, block in enumerate(plan.blocks):
        for sub in block.sublayers:
            if sub.kind == "attn":
                at = stack.layers[depth].group_of[sub.name]
                run = (
                    None
                    if contexts is None
                    else _kernel_run(config, stack, rows, at, contexts[at], sub)
                )
                yield depth, _explanation(sub, run)


def group_equal(found: Iterable[tuple[int, Item]]) -> dict[Item, list[int]]:
    """Equal items -> their layers."""
    layers: dict[Item, list[int]] = {}
    for depth, item in found:
        layers.setdefault(item, []).append(depth)
    return layers


def _explanation(sub: SublayerPlan, run: KernelRun | None) -> AttentionExplanation:
    component, mask, position = (node["name"] for node in (sub.component, sub.mask, sub.position))
    if (
        "kernel" not in ATTENTIONS.model_arguments(component)
        or sub.context.attn.computes == "mixture"
    ):
        return AttentionExplanation(sub.name, 1, component, mask, position, "none", None, ())
    faster = tuple(faster_kernels(sub.kernel_name, sub.context))
    return AttentionExplanation(
        sub.name, 1, component, mask, position, sub.kernel_name, run, faster
    )


def faster_kernels(name: str, context: Context) -> Iterator[tuple[str, str]]:
    """Each kernel that is faster than the one that runs and computes the same kind of attention,
    the fastest first, with the reason why it does not run.
    """
    asked = context.attn.computes
    for other in sorted((k for k in KERNELS if k != "auto"), key=lambda k: -KERNELS[k].speed):
        if KERNELS[other].speed > KERNELS[name].speed and asked in KERNELS[other].computes:
            yield other, cannot_train(other, context) or "it could too, and kernel=auto takes it"


def contexts_of(
    config: Any, stack: Stack, rows: int, documents: bool
) -> list[AttentionContext] | None:
    """In the order of the stack's groups; None for a component that reads values."""
    length, dtype = config["data"]["seq_len"], memory.weights_dtype(config)
    ids = torch.zeros(rows, length, dtype=torch.int64, device="meta")
    tokens = Tokens(ids=ids, document=torch.zeros_like(ids) if documents else None).with_positions()
    source = Tokens(ids=torch.zeros_like(ids)).with_positions()
    try:
        return stack.contexts(tokens, tokens, source, dtype)
    except (RuntimeError, NotImplementedError):
        return None


def _kernel_run(
    config: Any, stack: Stack, rows: int, group: int, context: AttentionContext, sub: SublayerPlan
) -> KernelRun:
    made = {id(x): x for x in tree_leaves(context.prepared) if isinstance(x, Tensor)}
    tables = sum(x.numel() * x.element_size() for x in made.values())
    kernel: Kernel = stack.kernels[stack.groups[group].kernel]
    queries, keys = context.query.length, context.key.length
    how, kept = kernel.explain(context.prepared, queries, keys, sub.component.get("dropout") or 0.0)
    pairs = queries * keys
    scores = kept + context.scored * pairs  # those of the position are one more
    size = memory.weights_dtype(config).itemsize
    return KernelRun(how, tables, rows * stack.groups[group].heads * scores * size)
