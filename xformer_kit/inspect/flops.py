"""Floating-point operations (FLOPs) per token.

torch's FlopCounterMode counts them while the model runs on the meta device, which has shapes and no
values: a product of (n, k) and (k, m) is 2 n k m; elementwise operations are not counted. All
scores count, also those that a kernel skips because a mask hides them. The backward pass counts
what the gradients need, without what a kernel computes twice: attentions run on the kernel
`reference`, or `chunked` if they keep a state. So the numbers do not depend on the kernel or the
device.

A token is one that a stack reads. With two stacks and sequences of length n, the source has n
tokens and the target n, and the total is divided by 2 n. The head computes the logits of every
token of the last stack, also of those that the loss ignores, unless the objective computes a share
of them (`given_logits`, masked language modelling). Further predictions of extras count in training
only.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from xformer_kit.inspect.attention_record import replaced
from xformer_kit.kernel import ChunkedRecurrence, Kernel, Reference
from xformer_kit.model.block import Block
from xformer_kit.model.stack import Stack
from xformer_kit.tensors.meta_results import MetaResults
from xformer_kit.tensors.tokens import Tokens
from xformer_kit.tensors.uncompiled import uncompiled


class Flops(NamedTuple):
    """FLOPs per token at one sequence length."""

    forward: float
    training: float  # forward and backward
    modules: dict[str, float]  # forward, by module name


def count(model: nn.Module, seq_len: int, given_logits: float = 1.0) -> Flops:
    """FLOPs per token of a model on any device, which is not changed, in sequences (with two stacks
    sources and targets) of `seq_len` tokens. given_logits: share of the tokens whose logits the
    objective computes.

    A model that cannot run on the meta device, because a component reads values, runs on its own
    device.
    """
    try:
        return _count(model, seq_len, "meta", given_logits)
    except Exception:  # any error that a component raises without values
        device = next(model.parameters()).device
        if device.type == "meta":
            raise
        return _count(model, seq_len, device.type, given_logits)


class _Step(nn.Module):
    """Computes the logits of the first tokens plus the components' auxiliary loss, in one output
    that depends on every parameter. With `multi_token`, extras compute their further predictions,
    as in training.
    """

    def __init__(self, model: Any, logits: int):
        super().__init__()
        self.model = model
        self.logits = logits  # tokens whose logits are computed
        self.multi_token = False

    def forward(self, ids: Tensor, source: Tensor | None = None) -> Tensor:
        read = None if source is None else Tokens(ids=source)
        options = {"multi_token": True} if self.multi_token else {}
        hidden, report = self.model.hidden(Tokens(ids=ids), source=read, **options)
        logits = self.model.head(hidden[..., : self.logits, :])
        return logits + report["loss"] if "loss" in report else logits


def _count(model: nn.Module, seq_len: int, device: str, given_logits: float = 1.0) -> Flops:
    step = _Step(model, max(1, round(given_logits * seq_len)))
    tensors = {
        name: (torch.empty_like(x, device="meta") if device == "meta" else x.detach().clone())
        for name, x in (*step.named_parameters(), *step.named_buffers())
    }
    for name, _ in step.named_parameters():
        tensors[name].requires_grad_()
    stacks = 2 if getattr(model, "two_stacks", False) else 1
    inputs = (torch.zeros(1, seq_len, dtype=torch.int64, device=device),) * stacks
    forward, by_module, training = _run(step, tensors, inputs)
    if getattr(model, "predictions", ()):
        step.multi_token = True
        *_, training = _run(step, tensors, inputs)
    prefix, tokens = f"{_Step.__name__}.model.", stacks * seq_len
    modules = {
        name.removeprefix(prefix): sum(operations.values()) / tokens
        for name, operations in by_module.items()
        if name.startswith(prefix)
    }
    return Flops(forward / tokens, training / tokens, modules)


def _run(
    step: _Step, tensors: dict[str, Tensor], inputs: tuple[Tensor, ...]
) -> tuple[int, dict[str, dict], int]:
    """FLOPs of a step: (forward, forward by module and operation, forward and backward)."""
    # torch's counter has no formula for triangular systems
    mapping = {torch.ops.aten.linalg_solve_triangular: _triangular}
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    kernels = replaced(_replacements(step.model))
    with uncompiled(), kernels, torch.enable_grad(), MetaResults(), counter:
        out = functional_call(step, tensors, inputs)
        forward, by_module = counter.get_total_flops(), counter.get_flop_counts()
        out.sum().backward()
    return forward, by_module, counter.get_total_flops()


def _triangular(system: Any, right: Any, *_: Any, **__: Any) -> int:
    """FLOPs of shapes (..., n, n) and (..., n, k): n^2 k, half of a product with a full matrix."""
    return math.prod(right) * system[-1]


def _replacements(model: nn.Module) -> Iterator[tuple[Any, str, Any]]:
    """(module, attribute, value) of what is replaced: attentions compute with `reference`, or
    `chunked` if they keep a state, stacks prepare for `reference`, and blocks keep activations.
    """
    reference = Reference()
    for module in model.modules():
        if isinstance(getattr(module, "kernel", None), Kernel):
            keeps_state = getattr(module, "computes", "scores") == "recurrence"
            yield module, "kernel", ChunkedRecurrence() if keeps_state else reference
        if isinstance(module, Block):
            yield module, "recomputed", None
        if isinstance(module, Stack):
            yield module, "kernels", dict.fromkeys(module.kernels, reference)
