"""The base class of kernels, and the choice among them.

A kernel computes softmax(mask(scores)) v, some also with other weights. Attentions that keep a
state instead of scores have their own kernels. `reference` computes every composition, so that
another kernel may reject one without making it impossible.

Shapes: b batch, t queries, s keys, h query heads, kv key and value heads, d head_dim, e v_head_dim.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xformer_kit.kernel.recurrence import Recurrence
from xformer_kit.registry import Context, Registry
from xformer_kit.tensors.tokens import AttentionContext

# (scores with biases, attention mask or None) -> weights
ScoreFn = Callable[[Tensor, Tensor | None], Tensor]


class KernelExplanation(NamedTuple):
    """How a kernel runs, for `xformer explain`."""

    description: str = ""  # of the computation, in words
    saved_scores: int = 0  # scores that each layer saves for backward, per head and sequence


class Kernel:
    """Base of all kernels. A kernel is a value without weights.

    speed: `auto` chooses the kernel with the highest speed that can train the composition.
    trains_on: device types on which it computes gradients; None: all.
    computes: the values of `Attention.computes` that it supports: `scores` with `__call__`,
    `recurrence` with `recur`, `mixture` with neither.
    """

    speed: float = 0
    trains_on: tuple[str, ...] | None = None
    computes: tuple[str, ...] = ("scores",)

    @classmethod
    def unsupported(cls, context: Context) -> str | None:
        """The first reason why the kernel cannot compute a composition, or None."""
        return None

    def prepare(
        self, context: AttentionContext, heads: int, biased: bool, dtype: torch.dtype
    ) -> Any:
        """Returns `context.prepared` for `__call__`. It is called once per forward of a stack, for
        all layers with the same mask and position.

        context: its queries are Tokens of (b, t), its keys of (b, s). heads: h. biased: whether the
        position has a bias. dtype: of q, k and v.
        """
        return None

    def explain(
        self, prepared: Any, queries: int, keys: int, dropout: float
    ) -> "KernelExplanation":
        """Describes how it runs in training.

        prepared: the result of `prepare`. queries, keys: t and s. dropout: probability.
        """
        return KernelExplanation()

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: AttentionContext,
        scale: float,
        dropout: float = 0.0,
        scores: Tensor | None = None,
        score_fn: ScoreFn | None = None,
    ) -> Tensor:
        """q (b, h, t, d), k (b, kv, s, d), v (b, kv, s, e) -> (b, h, t, e); h is a multiple of kv.

        context: queries and keys are Tokens of (b, t) and (b, s), or (1, t) and (1, s).
        scale: factor on q k^T.
        dropout: probability, on the weights; 0 outside training.
        scores: (b, h, t, s), of a position that computes scores; replace q k^T * scale.
        score_fn: computes the weights instead of softmax; the trait `score` describes it.

        The output of a query without visible keys is zero.
        """
        raise NotImplementedError

    def recur(self, recurrence: Recurrence, state: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        """Returns what every token reads from the state, (b, h, t, e), and the state after the last
        token, (b, h, d, e).

        recurrence: q, k (b, h, t, d) and v (b, h, t, e), with their decays. state: before the first
        token, (b, h, d, e). chunk: tokens that may be computed at once.
        """
        raise NotImplementedError


KERNELS = Registry("kernel", base=Kernel)


@KERNELS.register(
    "auto",
    similar=("flash", "flash_attention", "xformers"),
)
class Auto(Kernel):
    """The fastest kernel that can compute the composition; `xformer describe` shows which."""


def cannot_compute(name: str, context: Context) -> str | None:
    """Why a kernel cannot compute the composition, or None."""
    if name != "auto" and context.attn.computes not in KERNELS[name].computes:
        attn = f"attn '{context.names['attn']}'"
        if "scores" not in KERNELS[name].computes:
            return f"{attn} keeps no state, whose steps {name} computes"
        return f"{attn} has no scores that {name} could compute"
    return KERNELS[name].unsupported(context)


def choose(name: str, context: Context) -> str:
    """The name of the kernel that runs: `name` itself, or for auto the fastest that can."""
    if name != "auto":
        return name
    supported = [n for n in KERNELS if n != "auto" and cannot_train(n, context) is None]
    return max(supported, key=lambda n: KERNELS[n].speed)


def cannot_train(name: str, context: Context) -> str | None:
    """Why a kernel cannot train the composition, or None."""
    return cannot_compute(name, context) or cannot_train_on(name, context.device)


def cannot_train_on(name: str, device: str) -> str | None:
    """Why a kernel cannot train on a kind of device, or None."""
    devices = KERNELS[name].trains_on
    if devices is None or device in devices:
        return None
    return (
        f"{name} computes gradients only on {' and '.join(kind.upper() for kind in devices)}, and"
        f" this is a {device.upper()}"
    )


def bias(context: AttentionContext, heads: int) -> Tensor:
    """The position's bias, broadcasting to (b, h, t, s). heads: h."""
    head = torch.arange(heads, device=context.query.slot.device).view(1, -1, 1, 1)
    return context.position.bias(context.query.as_query(), context.key.as_key(), head)
