"""Floating-point operations per token.

Counted by torch's FlopCounterMode while the model runs on the meta device, where shapes flow and
nothing is computed: a product of (n, k) and (k, m) is 2 n k m, element-wise work is left out.
Scores count in full, as a dense product, also where a kernel skips what a mask hides, and the
backward pass counts what the gradient needs, without what a kernel computes again: attentions run
as their equations are written, by the kernel `reference`, and those that keep a state in chunks, by
`chunked`. So the figure belongs to the model, not to a kernel or a device.

A token is one that a stack reads. Two stacks at a length of n read n tokens of a source and n of a
target: what they cost together is divided by 2 n. Every token of the stack that speaks is given its
logits, also where the loss leaves it out, unless the objective gives the head a share of them alone
(masked language modelling: `given_logits`). What extras predict in addition to the next token
counts only in training.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from xformer_kit.inspect.weights import uncompiled
from xformer_kit.kernel import ChunkedRecurrence, Kernel, Reference
from xformer_kit.model.stack import Stack
from xformer_kit.model.tokens import Tokens


class Flops(NamedTuple):
    """Of one token, at the sequence length that was asked for."""

    forward: float
    training: float  # forward and backward
    modules: dict[str, float]  # forward, by the name of the module that computes


def flops_per_token(model: nn.Module, seq_len: int, given_logits: float = 1.0) -> float:
    """Training FLOPs per token, forward and backward, in sequences of `seq_len` tokens, of a source
    as of a target. The model may lie anywhere.
    """
    return count(model, seq_len, given_logits).training


def count(model: nn.Module, seq_len: int, given_logits: float = 1.0) -> Flops:
    """FLOPs per token of a model that may lie anywhere; it is left as it is. `given_logits`: the
    objective's own, the share of the tokens that the head is given.

    A model that cannot run on the meta device, because a part of it reads values, runs where it
    lies.
    """
    try:
        return _count(model, seq_len, "meta", given_logits)
    except Exception:  # whatever a component does that has no meaning without values
        device = next(model.parameters()).device
        if device.type == "meta":
            raise
        return _count(model, seq_len, device.type, given_logits)


class _Step(nn.Module):
    """Logits, and with them what the components add to the loss, as one call that leads back to
    every parameter; with `options` also those of what extras predict, which only training computes.
    """

    def __init__(self, model: nn.Module, given: int):
        super().__init__()
        self.model = model
        self.given = given
        self.options: dict[str, bool] = {}

    def forward(self, ids: Tensor, source: Tensor | None = None) -> Tensor:
        read = None if source is None else Tokens(ids=source)
        model: Any = self.model
        hidden, report = model.hidden(Tokens(ids=ids), source=read, **self.options)
        logits = model.head(hidden[..., : self.given, :])
        return logits + report["loss"] if "loss" in report else logits


def _count(model: nn.Module, seq_len: int, device: str, given_logits: float = 1.0) -> Flops:
    step = _Step(model, max(1, round(given_logits * seq_len)))
    tensors = {
        name: (
            torch.empty_like(x, device="meta", requires_grad=False)
            if device == "meta"
            else x.detach().clone()
        )
        for name, x in (*step.named_parameters(), *step.named_buffers())
    }
    streams = 2 if getattr(model, "two_stacks", False) else 1
    given = tuple(torch.zeros(1, seq_len, dtype=torch.int64, device=device) for _ in range(streams))
    tokens = streams * seq_len
    for name, _ in step.named_parameters():
        tensors[name].requires_grad_()
    forward, by_module, training = _run(step, tensors, given)
    if getattr(model, "predictions", ()):
        step.options = {"further": True}
        *_, training = _run(step, tensors, given)
    prefix = f"{_Step.__name__}.model."
    modules = {
        name.removeprefix(prefix): sum(ops.values()) / tokens
        for name, ops in by_module.items()
        if name.startswith(prefix)
    }
    return Flops(forward / tokens, training / tokens, modules)


def _run(
    step: _Step, tensors: dict[str, Tensor], given: tuple[Tensor, ...]
) -> tuple[int, dict[str, dict], int]:
    """FLOPs of a step: forward, forward by module, and with the way back."""
    # torch does not know triangular systems
    mapping = {torch.ops.aten.linalg_solve_triangular: _triangular}
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    with uncompiled(), _as_written(step.model), torch.enable_grad(), counter:
        out = functional_call(step, tensors, given)
        forward, by_module = counter.get_total_flops(), counter.get_flop_counts()
        out.sum().backward()
    return forward, by_module, counter.get_total_flops()


def _triangular(system: Any, right: Any, *rest: Any, out_shape: Any = None, **named: Any) -> int:
    """(..., n, n) and (..., n, k): n^2 k, half of a product with a matrix that is full."""
    return math.prod(right) * system[-1]


@contextmanager
def _as_written(model: nn.Module) -> Iterator[None]:
    """Attentions compute through `reference`, or `chunked` where they keep a state, and stacks
    prepare for the former.
    """
    reference = Reference()
    kept: list[tuple[Any, str, Any]] = []
    for module in model.modules():
        if isinstance(getattr(module, "kernel", None), Kernel):
            state = getattr(module, "computes", "scores") == "recurrence"
            kept.append((module, "kernel", module.kernel))
            module.kernel = ChunkedRecurrence() if state else reference  # type: ignore[assignment]
        if isinstance(module, Stack):
            kept.append((module, "kernels", module.kernels))
            module.kernels = dict.fromkeys(module.kernels, reference)
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
