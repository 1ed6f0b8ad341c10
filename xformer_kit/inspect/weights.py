"""Attention weights, recomputed from the inputs of the layers' kernels.

Fast kernels never form the weights. Here every chosen attention runs on its own kernel, and the
queries, keys, scale, mask and biases of the kernel also go through the formula of `reference`. So
the weights are those of any kernel, also with another function than softmax.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import ATTENTIONS, Attention
from xformer_kit.kernel import Kernel, Reference
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import ConfigError, Fault, Faults, config_error, suggestion

REFERENCE = Reference()
WEIGHTLESS = {
    "recurrence": (
        "keeps a state that tokens are written to and read from, and no weight for each pair of"
        " tokens"
    ),
    "mixture": "mixes tokens in a fixed way, without a weight that one token gives another",
}  # what an attention computes in place of scores


class Call(NamedTuple):
    """One attention of one layer."""

    name: str  # decoder.3.attn, or decoder.3.cross
    depth: int
    module: Attention
    biased: bool  # whether its position has a bias


def attention_weights(
    model: Model,
    ids: Tensor | None = None,
    *,
    layers: Sequence[int | str] | None = None,
    heads: Sequence[int] | None = None,
    **inputs: Any,
) -> dict[str, Tensor]:
    """The weights with which the attentions of a model sum values: name -> (batch, heads, queries,
    keys), in fp32 at least.

    ids and inputs are those of a call of the model: `attention_weights(model, ids)`, or with two
    stacks `attention_weights(model, source=source, target=target)`; padding as `real=`,
    `source_real=`, ... Nothing is dropped out, and nothing is kept for gradients.

    A name is stack.layer.sublayer: `encoder.0.attn`, `decoder.0.attn`, and for what the decoder
    sees of the source `decoder.0.cross`. layers: numbers of layers from 0 on, or such names; None
    is every attention that has weights, in the order of the layers. heads: which heads, from 0 on;
    None is all.

    Under softmax a row sums to 1, or to 0 where a query sees nothing; other scores, and
    `differential`, have weights of their own kind. Learned keys of `persistent_memory` come before
    those of tokens. Of an attention through landmarks or mixtures of tokens (nystrom, orthoformer,
    linformer) and of `lambda` they are what each token's value counts in the end.

    Raises ConfigError for layers and heads that are not there, and for an attention without weights
    that is named or that all
    are: one that keeps a state, as linear attention does, or that mixes tokens in a fixed way.
    """
    return {
        name: record.weights
        for name, record in record_attention(
            model, lambda: model(ids, **inputs), layers, heads
        ).items()
    }


class AttentionRecord(NamedTuple):
    """The weights and the tokens of an attention in a forward pass."""

    weights: Tensor  # (batch, heads, queries, keys)
    query: Tokens
    key: Tokens


def record_attention(
    model: Model,
    forward: Callable[[], Any],
    layers: Sequence[int | str] | None = None,
    heads: Sequence[int] | None = None,
) -> dict[str, AttentionRecord]:
    """Returns the weights and tokens of the attentions in any forward pass of the model, such as
    that of a loss.
    """
    chosen = _chosen(list(_calls(model)), layers)
    found: dict[str, AttentionRecord] = {}
    with torch.no_grad(), _evaluation_mode(model), uncompiled(), ExitStack() as stack:
        for module in dict.fromkeys(call.module for call in chosen):
            by_depth = {call.depth: call for call in chosen if call.module is module}
            stack.enter_context(_recording(module, by_depth, found))
        forward()
    without = [call for call in chosen if call.name not in found]
    if without and (layers is not None or not found):
        raise ConfigError(_without_weights(without))
    return {
        call.name: _of_heads(found[call.name], heads, call.name)
        for call in chosen
        if call.name in found
    }


def _calls(model: Model) -> Iterator[Call]:
    """Every attention of every layer; layers may share one."""
    for name in model.names:
        stack: Any = model.get_submodule(name)
        for depth, block in enumerate(stack.layers):
            for sub, attn in block.attentions().items():
                hooks = stack.position_enters[stack.groups[block.group_of[sub]].position]
                yield Call(f"{name}.{depth}.{sub}", depth, attn, "bias" in hooks)


def _chosen(every: Sequence[Call], layers: Sequence[int | str] | None) -> list[Call]:
    if not every:
        raise config_error(
            "layers",
            "the model has no attention",
            fix="Name a model with one, e.g. attn=multi_head.",
        )
    if layers is None:
        return list(every)
    known, depths = [call.name for call in every], sorted({call.depth for call in every})
    for layer in layers:
        if isinstance(layer, str) and layer not in known:
            raise config_error(
                "layers", f"no attention is called '{layer}'", fix=suggestion(layer, known)
            )
        if not isinstance(layer, str) and layer not in depths:
            raise config_error(
                "layers",
                f"there is no layer {layer} with an attention",
                fix=f"Known: {', '.join(map(str, depths))}.",
            )
    return [call for call in every if call.name in layers or call.depth in layers]


def _of_heads(record: AttentionRecord, heads: Sequence[int] | None, name: str) -> AttentionRecord:
    if heads is None:
        return record
    count = record.weights.shape[1]
    for head in heads:
        if not 0 <= head < count:
            raise config_error("heads", f"{name} has heads 0 to {count - 1}", got=head)
    return record._replace(weights=record.weights[:, list(heads)])


def _without_weights(calls: Sequence[Call]) -> Faults:
    """Why attentions have no weights, a fault for each kind of them."""
    alike: dict[type[Attention], list[str]] = {}
    for call in calls:
        alike.setdefault(type(call.module), []).append(call.name)
    for component, names in alike.items():
        name = ATTENTIONS.name_of(component) or component.__name__
        why = WEIGHTLESS.get(
            component.computes,
            "calls its kernel several times, and does not say what its weights are",
        )
        yield Fault(
            ", ".join(names),
            f"attn '{name}' {why}",
            fix="Choose other layers, or attn=multi_head.",
        )


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """In evaluation mode: nothing is dropped out, and nothing drawn."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def uncompiled() -> AbstractContextManager[Any]:
    """Without compilation: a compiled block would not call the watching kernel, and its graphs are
    for another device. If nothing is compiled, the compiler is not imported, which takes seconds.
    """
    if "torch._dynamo" in sys.modules:
        return torch.compiler.set_stance("force_eager")
    return nullcontext()


class RecordingKernel(Kernel):
    """Computes what another kernel computes, and keeps the weights that `reference` has for the
    same.
    """

    def __init__(self, kernel: Kernel, biased: bool):
        self.kernel = kernel
        self.biased = biased
        self.on = False
        self.calls: list[Tensor] = []
        for rest in ("prepare", "recur", "explain"):
            setattr(self, rest, getattr(kernel, rest))

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, score_fn=None):
        if self.on:
            state = context.cross_layer_state
            before = None if state is None else dict(state)
            reference_context = context
            if not isinstance(self.kernel, Reference):
                wide = torch.promote_types(q.dtype, torch.float32)
                prepared = REFERENCE.prepare(context, q.shape[1], self.biased, wide)
                reference_context = context._replace(prepared=prepared)
            self.calls.append(weights_of(q, k, reference_context, scale, scores, score_fn))
            if state is not None:  # each layer adds to it only once
                state.clear()
                state.update(before)
        more = () if score_fn is None else (score_fn,)
        return self.kernel(q, k, v, context, scale, dropout, scores, *more)


def weights_of(
    q: Tensor, k: Tensor, context: Any, scale: float, scores: Any, score_fn: Any
) -> Tensor:
    """The weights (b, h, t, s) of what `reference` is given, in fp32 at least."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide), k.to(wide)
    with torch.autocast(q.device.type, enabled=False):
        return REFERENCE.weights(
            q, k, context, scale, 0.0, None if scores is None else scores.to(wide), score_fn
        )


@contextmanager
def _hooked(attn: Any, kernel: Any, *handles: Any) -> Iterator[None]:
    """The attention on another kernel, if it has one; afterwards as before, without these hooks."""
    kept = getattr(attn, "kernel", None)
    if kept is not None:
        attn.kernel = kernel
    try:
        yield
    finally:
        if kept is not None:
            attn.kernel = kept
        for handle in handles:
            handle.remove()


@contextmanager
def _recording(
    attn: Attention, by_depth: Mapping[int, Call], found: dict[str, AttentionRecord]
) -> Iterator[None]:
    """Puts the weights of an attention's calls in these layers into `found`."""
    call = next(iter(by_depth.values()))
    kernel = getattr(attn, "kernel", None)
    recording = RecordingKernel(kernel, call.biased) if kernel is not None else None

    def before(module: Any, args: Any, kwargs: Any) -> None:
        if recording is not None:
            recording.on, recording.calls = kwargs["context"].depth in by_depth, []

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        context = kwargs["context"]
        if context.depth not in by_depth:
            return
        calls = [] if recording is None else recording.calls
        weights = attn.attention_weights(
            calls, partial(_probe_weights, attn, args[0], kwargs.get("source"), context)
        )
        if weights is not None:
            found[by_depth[context.depth].name] = AttentionRecord(
                weights, context.query, context.key
            )

    handles = (
        attn.register_forward_pre_hook(before, with_kwargs=True),
        attn.register_forward_hook(after, with_kwargs=True),
    )
    with _hooked(attn, recording, *handles):
        yield


def _probe_weights(attn: Any, x: Tensor, source: Tensor | None, context: Any, width: int) -> Tensor:
    """The weights (b, h, t, s) of an attention that is linear in its values, whatever happens on
    the way: what its heads sum up where the value of token j is 1 in channel j mod `width`, for as
    many tokens at a time as a value has channels.
    """
    tokens = (x if source is None else source).shape[1]
    sums: list[Tensor] = []
    for start in range(0, tokens, width):
        one = torch.eye(tokens, dtype=x.dtype, device=x.device)[:, start : start + width]
        one = F.pad(one, (0, width - one.shape[1]))  # (s, width)

        def values(module, args, output, one=one):
            return one.repeat(1, output.shape[-1] // width).to(output.dtype).expand_as(output)

        handles = (
            attn.v.register_forward_hook(values),
            attn.o.register_forward_pre_hook(lambda module, args: sums.append(args[0])),
        )
        with _hooked(attn, REFERENCE, *handles):
            attn.forward(x, source, context)  # not a call, which would be watched again
    # (b, t, h * width) -> (b, h, t, width)
    apart = [read.unflatten(-1, (-1, width)).transpose(1, 2) for read in sums]
    weights = torch.cat(apart, -1)[..., :tokens]
    return weights.to(torch.promote_types(weights.dtype, torch.float32))
