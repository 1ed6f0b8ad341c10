"""Attention weights, recomputed from the inputs of the attentions' kernels.

Fast kernels never compute the weights. Each chosen attention runs on its own kernel, and the
kernel's queries, keys, scale, mask and bias are also passed to the kernel `reference`. So the
weights are those of any kernel, also with a function other than softmax.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.attention import ATTENTIONS, Attention
from xformer_kit.inspect.layers import group_equal
from xformer_kit.kernel import Kernel, Reference
from xformer_kit.model.model import Model
from xformer_kit.registry import ConfigError, Fault, Faults, config_error, suggestion
from xformer_kit.tensors.tokens import Tokens
from xformer_kit.tensors.uncompiled import uncompiled

REFERENCE = Reference()
# what an attention computes in place of scores -> why it has no weights
WITHOUT_WEIGHTS = {
    "recurrence": (
        "keeps a state that tokens are written to and read from, and no weight for each pair of"
        " tokens"
    ),
    "mixture": "mixes tokens in a fixed way, without a weight that one token gives another",
}


class LayerAttention(NamedTuple):
    """An attention in a layer; layers may share its module."""

    name: str  # decoder.3.attn, or decoder.3.cross
    depth: int
    module: Attention
    biased: bool  # whether its position has a bias


class AttentionRecord(NamedTuple):
    """The weights and the tokens of an attention in a forward pass."""

    weights: Tensor  # (batch, heads, queries, keys)
    query: Tokens
    key: Tokens


def attention_weights(
    model: Model,
    ids: Tensor | None = None,
    *,
    layers: Sequence[int | str] | None = None,
    heads: Sequence[int] | None = None,
    **inputs: Any,
) -> dict[str, Tensor]:
    """Returns the weights with which a model's attentions sum values: name -> (batch, heads,
    queries, keys), in fp32 or wider.

    ids and inputs are those of a call of the model: `attention_weights(model, ids)`, or with two
    stacks `attention_weights(model, source=source, target=target)`; padding as `real=`,
    `source_real=`, ... The model runs in evaluation mode, without gradients.

    A name is stack.layer.sublayer: `encoder.0.attn`, `decoder.0.attn`, and `decoder.0.cross` for
    attention to the source. layers: numbers of layers from 0 on, or such names; None for every
    attention that has weights, in the order of the layers. heads: numbers of heads from 0 on; None
    for all.

    With softmax a row sums to 1, or to 0 if the query sees no key; other scores and `differential`
    have other sums. Learned keys of `persistent_memory` come before those of tokens. For attentions
    through landmarks or mixtures of tokens (nystrom, orthoformer, linformer) and for `lambda`, a
    weight is the factor of a token's value in the output. A model with a mask of distances moves
    padding between tokens after them, also in the weights.

    Raises ConfigError for layers and heads that do not exist, and for attentions without weights if
    they are chosen or if there are no others: those that keep a state (linear attention), and those
    that mix tokens in a fixed way.
    """
    records = record_attention(model, lambda: model(ids, **inputs), layers, heads)
    return {name: record.weights for name, record in records.items()}


def record_attention(
    model: Model,
    forward: Callable[[], Any],
    layers: Sequence[int | str] | None = None,
    heads: Sequence[int] | None = None,
) -> dict[str, AttentionRecord]:
    """Returns the weights and tokens of the attentions in any forward pass of the model, such as
    that of a loss.
    """
    chosen = _select(list(_attentions(model)), layers)
    records: dict[str, AttentionRecord] = {}
    with torch.no_grad(), ExitStack() as stack:
        # Evaluation mode: no dropout, no random numbers.
        stack.enter_context(replaced((module, "training", False) for module in model.modules()))
        stack.enter_context(uncompiled())
        by_module = group_equal((item, item.module) for item in chosen)
        for module, attentions in by_module.items():
            stack.enter_context(_recording(module, attentions, records))
        forward()
    without = [item for item in chosen if item.name not in records]
    if without and (layers is not None or not records):
        raise ConfigError(_faults_without_weights(without))
    return {
        item.name: _select_heads(records[item.name], heads, item.name)
        for item in chosen
        if item.name in records
    }


def _attentions(model: Model) -> Iterator[LayerAttention]:
    """All attentions of all layers."""
    for name in model.names:
        stack: Any = model.get_submodule(name)
        for depth, block in enumerate(stack.layers):
            for sublayer, module in block.attentions().items():
                enters = stack.position_enters[
                    stack.attention_groups[block.attention_group_of[sublayer]].position
                ]
                path = f"{name}.{depth}.{sublayer}"
                yield LayerAttention(path, depth, module, "bias" in enters)


def _select(
    attentions: list[LayerAttention], layers: Sequence[int | str] | None
) -> list[LayerAttention]:
    """The attentions of these layers. Raises ConfigError for a layer that does not exist."""
    if not attentions:
        raise config_error(
            "layers",
            "the model has no attention",
            fix="Name a model with one, e.g. attn=multi_head.",
        )
    if layers is None:
        return attentions
    names, depths = [item.name for item in attentions], sorted({item.depth for item in attentions})
    for layer in layers:
        if layer not in (known := names if isinstance(layer, str) else depths):
            fix = suggestion(layer, map(str, known))
            raise config_error("layers", f"no attention is called '{layer}'", fix=fix)
    return [item for item in attentions if item.name in layers or item.depth in layers]


def _select_heads(
    record: AttentionRecord, heads: Sequence[int] | None, name: str
) -> AttentionRecord:
    if heads is None:
        return record
    count = record.weights.shape[1]
    for head in heads:
        if not 0 <= head < count:
            raise config_error("heads", f"{name} has heads 0 to {count - 1}", got=head)
    return record._replace(weights=record.weights[:, list(heads)])


def _faults_without_weights(attentions: Sequence[LayerAttention]) -> Faults:
    """A fault with the reason for each component that has no weights."""
    names = group_equal((item.name, type(item.module)) for item in attentions)
    for component, paths in names.items():
        name = ATTENTIONS.name_of(component) or component.__name__
        reason = WITHOUT_WEIGHTS.get(
            component.computes, "calls its kernel several times, and does not define its weights"
        )
        fix = "Choose other layers, or attn=multi_head."
        yield Fault(", ".join(paths), f"attn '{name}' {reason}", fix=fix)


@contextmanager
def replaced(attributes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Sets attributes (object, name, value) in this context and restores them after it."""
    before = []
    try:
        for owner, name, value in attributes:
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


class RecordingKernel(Kernel):
    """Computes with another kernel, and records the weights that `reference` computes from the same
    inputs, while `recording`.
    """

    def __init__(self, kernel: Kernel, biased: bool):
        self.kernel = kernel
        self.biased = biased
        self.recording = False
        self.weights: list[Tensor] = []  # of each call
        for method in ("prepare", "recur", "explain"):
            setattr(self, method, getattr(kernel, method))

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, score_fn=None):
        if self.recording:
            self.weights.append(self._reference_weights(q, k, context, scale, scores, score_fn))
        more = () if score_fn is None else (score_fn,)
        return self.kernel(q, k, v, context, scale, dropout, scores, *more)

    def _reference_weights(self, q, k, context, scale, scores, score_fn) -> Tensor:
        """The weights (b, h, t, s), in fp32 or wider. The cross-layer state, to which each layer
        adds once, does not change.
        """
        dtype = torch.promote_types(q.dtype, torch.float32)
        if not isinstance(self.kernel, Reference):
            prepared = REFERENCE.prepare(context, q.shape[1], self.biased, dtype)
            context = context._replace(prepared=prepared)
        if scores is not None:
            scores = scores.to(dtype)
        state = context.cross_layer_state
        before = dict(state or {})
        with torch.autocast(q.device.type, enabled=False):
            weights = REFERENCE.weights(
                q.to(dtype), k.to(dtype), context, scale, 0.0, scores, score_fn
            )
        if state is not None:
            state.clear()
            state.update(before)
        return weights


@contextmanager
def _recording(
    attn: Attention, attentions: Sequence[LayerAttention], records: dict[str, AttentionRecord]
) -> Iterator[None]:
    """Adds the records of a module's calls to `records`; attentions: the layers that call it."""
    names = {item.depth: item.name for item in attentions}
    kernel = getattr(attn, "kernel", None)
    recording = None if kernel is None else RecordingKernel(kernel, attentions[0].biased)

    def before(module: Any, args: Any, kwargs: Any) -> None:
        if recording is not None:
            recording.recording, recording.weights = kwargs["context"].depth in names, []

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        context = kwargs["context"]
        if context.depth in names:
            calls = [] if recording is None else recording.weights
            probe = partial(_probe_weights, attn, args[0], kwargs.get("source"), context)
            if (weights := attn.attention_weights(calls, probe)) is not None:
                records[names[context.depth]] = AttentionRecord(weights, context.query, context.key)

    with (
        _on_kernel(attn, recording),
        attn.register_forward_pre_hook(before, with_kwargs=True),
        attn.register_forward_hook(after, with_kwargs=True),
    ):
        yield


def _on_kernel(attn: Any, kernel: Kernel | None) -> AbstractContextManager[None]:
    """Replaces the attention's kernel in this context, if it has one."""
    return replaced([] if getattr(attn, "kernel", None) is None else [(attn, "kernel", kernel)])


def _probe_weights(attn: Any, x: Tensor, source: Tensor | None, context: Any, width: int) -> Tensor:
    """The weights (b, h, t, s) of any attention that is linear in its values: the heads' sums if
    the value of token j is 1 in channel j mod `width` and 0 elsewhere, for `width` tokens at a
    time.
    """
    tokens = (x if source is None else source).shape[1]
    sums: list[Tensor] = []
    for start in range(0, tokens, width):
        one_hot = torch.eye(tokens, dtype=x.dtype, device=x.device)[:, start : start + width]
        one_hot = F.pad(one_hot, (0, width - one_hot.shape[1]))  # (s, width)

        def values(module, args, output, one_hot=one_hot):
            return one_hot.repeat(1, output.shape[-1] // width).to(output.dtype).expand_as(output)

        with (
            _on_kernel(attn, REFERENCE),
            attn.v.register_forward_hook(values),
            attn.o.register_forward_pre_hook(lambda module, args: sums.append(args[0])),
        ):
            attn.forward(x, source, context)  # without the hooks of a call
    # (b, t, h * width) -> (b, h, t, width)
    weights = torch.cat([heads.unflatten(-1, (-1, width)).transpose(1, 2) for heads in sums], -1)
    return weights[..., :tokens].to(torch.promote_types(weights.dtype, torch.float32))
