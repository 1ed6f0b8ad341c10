"""The kernel of each attention: which one computes it in training, how, why no faster one does, and
its memory; and how the loss is computed.

Returns plain data from a valid config; nothing is allocated.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from xformer_kit.attention import ATTENTIONS
from xformer_kit.config.faults.size import ensure_countable
from xformer_kit.inspect import memory
from xformer_kit.inspect.layers import format_ranges, group_equal
from xformer_kit.inspect.losses import LossRun, loss_runs
from xformer_kit.inspect.vocabulary import vocabulary
from xformer_kit.kernel import KERNELS, Kernel, cannot_train
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.model.stack import Stack
from xformer_kit.plan import StackPlan, SublayerPlan, stacks
from xformer_kit.registry import ConfigError, Context, Node
from xformer_kit.tensors.tokens import AttentionContext, Tokens

ANY_VOCABULARY = 256  # tokens of a model whose vocabulary is not known; kernels do not depend on it


class KernelRun(NamedTuple):
    """How a kernel runs in a training step, and its memory in bytes."""

    how: str
    tables: int  # of masks and biases; layers with equal ones share them
    kept: int  # of scores that each layer keeps for the gradient, at least


class AttentionExplanation(NamedTuple):
    """Attentions of one or more layers whose kernel runs in the same way."""

    where: str
    layers: int
    component: str
    mask: str
    position: str
    kernel: str
    run: KernelRun | None  # None if unknown, or if the component needs no kernel
    faster: tuple[tuple[str, str], ...]  # (kernel, why it is not used) of each faster kernel


class Explanation(NamedTuple):
    rows: int  # sequences of a micro-batch on one device
    seq_len: int  # tokens
    precision: str
    device: str
    documents: bool  # whether documents are packed and attention stays within each
    attentions: list[AttentionExplanation]
    losses: list[LossRun] | None  # None if the size of the vocabulary is not known


def explain(config: Node, vocab_size: int | None = None) -> Explanation:
    """Explains all attentions of a valid config, in the order of their layers, and the loss. Raises
    ConfigError if no machine can hold the model. vocab_size: in place of the tokenizer's.
    """
    ensure_countable(config)
    if vocab_size is None:
        with suppress(ConfigError):  # it is not known before the tokenizer has read the text
            vocab_size = vocabulary(config)
    with torch.device("meta"):
        model = build_model(config, vocab_size or ANY_VOCABULARY)
    rows, seq_len = memory.micro_batch(config)[0], config["data"]["seq_len"]
    documents = bool(config["data"].get("documents"))
    device = memory.run_device(config).type
    explanations = [
        item._replace(where=f"{plan.name}.{format_ranges(depths)}.{item.where}", layers=len(depths))
        for plan in stacks(config)
        for item, depths in group_equal(attentions(config, plan, model, rows, documents)).items()
    ]
    losses = None if vocab_size is None else list(loss_runs(config, model))
    precision = memory.precision(config)
    return Explanation(rows, seq_len, precision, device, documents, explanations, losses)


def attentions(
    config: Any, plan: StackPlan, model: Model, rows: int = 1, documents: bool = False
) -> Iterator[tuple[int, AttentionExplanation]]:
    """(layer, explanation) of each attention of a stack, in batches of `rows` sequences; `where` is
    the name of the sublayer.
    """
    stack: Any = model.get_submodule(plan.name)
    contexts = contexts_of(config, stack, rows, documents)
    bytes_per_score = rows * memory.weights_dtype(config).itemsize
    for depth, block in enumerate(plan.blocks):
        for sub in block.sublayers:
            if sub.kind == "attn":
                group = stack.layers[depth].attention_group_of[sub.name]
                dropout = sub.component.get("dropout") or 0.0
                run = contexts and _run(stack, group, contexts[group], dropout, bytes_per_score)
                yield depth, _explanation(sub, run)


def _explanation(sub: SublayerPlan, run: KernelRun | None) -> AttentionExplanation:
    component, mask, position = (node["name"] for node in (sub.component, sub.mask, sub.position))
    kernel, faster = "none", tuple[tuple[str, str], ...]()
    has_kernel = "kernel" in ATTENTIONS.model_arguments(component)
    if has_kernel and sub.context.attn.computes != "mixture":
        kernel = sub.kernel_name
        faster = tuple(faster_kernels(kernel, sub.context))
    else:
        run = None
    return AttentionExplanation(sub.name, 1, component, mask, position, kernel, run, faster)


def faster_kernels(name: str, context: Context) -> Iterator[tuple[str, str]]:
    """(kernel, why it is not used) of each faster kernel for the same kind of attention, the
    fastest first.
    """
    speed = {kernel: component.speed for kernel, component in KERNELS.items() if kernel != "auto"}
    for kernel in sorted(speed, key=speed.__getitem__, reverse=True):
        if speed[kernel] > speed[name] and context.attn.computes in KERNELS[kernel].computes:
            yield kernel, cannot_train(kernel, context) or "it could too, and kernel=auto takes it"


def contexts_of(config: Any, stack: Any, rows: int, documents: bool) -> Any:
    """The context of each of the stack's attention groups; None if a component reads values."""
    length, dtype = config["data"]["seq_len"], memory.weights_dtype(config)
    ids = torch.zeros(rows, length, dtype=torch.int64, device="meta")
    tokens = Tokens(ids=ids, document=torch.zeros_like(ids) if documents else None).with_positions()
    source = Tokens(ids=torch.zeros_like(ids)).with_positions()
    try:
        return stack.contexts(tokens, tokens, (tokens, source), dtype)
    except (RuntimeError, NotImplementedError):
        return None


def _run(
    stack: Stack, group: int, context: AttentionContext, dropout: float, bytes_per_score: int
) -> KernelRun:
    """How the kernel of an attention group runs. bytes_per_score: of all rows together."""
    tensors = {id(x): x for x in tree_leaves(context.prepared) if isinstance(x, Tensor)}
    kernel: Kernel = stack.kernels[stack.attention_groups[group].kernel]
    queries, keys = context.query.length, context.key.length
    how, kept = kernel.explain(context.prepared, queries, keys, dropout)
    scores = kept + context.scored * queries * keys  # a position that computes scores keeps them
    return KernelRun(
        how,
        sum(x.nbytes for x in tensors.values()),
        stack.attention_groups[group].heads * scores * bytes_per_score,
    )
