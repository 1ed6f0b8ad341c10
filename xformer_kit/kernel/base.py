"""The contract of a kernel, and the choice among them.

A kernel computes softmax(mask(scores)) v, and one that can takes other weights than softmax's.
Attentions that keep a state in place of scores have kernels of their own. A kernel may be refused
by a composition; the composition never is, for `reference` can compute every one.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xformer_kit.kernel.recurrence import Recurrence
from xformer_kit.model.tokens import AttentionContext
from xformer_kit.registry import Context, Fault, Options, Registry

Weigh = Callable[
    [Tensor, Tensor | None], Tensor
]  # (scores with biases, what is seen or None: all) -> weights


class Explanation(NamedTuple):
    """How a kernel runs, for `xformer explain`."""

    how: str = ""  # in a few words
    kept: int = 0  # scores that each layer keeps for the gradient, of one head and sequence


class Kernel:
    """Base of all kernels. A kernel is a value without weights.

    speed: `auto` takes the kernel of the highest speed that can.
    trains_on: the kinds of devices on which it computes gradients; None: all.
    computes: what attentions may ask of it: `scores` of `__call__`, or `recurrence` of `recur`;
    with `mixture` it also stands where nothing is asked.
    """

    speed: float = 0
    trains_on: tuple[str, ...] | None = None
    computes: tuple[str, ...] = ("scores",)

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Why the kernel cannot compute the composition."""
        yield from ()

    def prepare(
        self, context: AttentionContext, heads: int, biased: bool, dtype: torch.dtype
    ) -> Any:
        """Once per forward of a stack, for all its layers with one mask and position: what
        `__call__` finds in `context.prepared`. `biased` says whether the position has a bias.
        """
        return None

    def explain(self, prepared: Any, queries: int, keys: int, dropout: float) -> "Explanation":
        """How it runs in training with what `prepare` made and that dropout of weights."""
        return Explanation()

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: AttentionContext,
        scale: float,
        dropout: float = 0.0,
        scores: Tensor | None = None,
        weigh: Weigh | None = None,
    ) -> Tensor:
        """q (b, h, t, d), k (b, kv, s, d), v (b, kv, s, e) -> (b, h, t, e); h is a multiple of kv.

        `dropout` is the probability on the weights, 0 outside training. `scores` (b, h, t, s),
        where a position gives them, take the place of q k^T * scale. `weigh`, where an attention
        has one (the trait `score` describes it), makes the weights in place of softmax. A
        row with nothing to see is zero.
        """
        raise NotImplementedError

    def recur(self, recurrence: Recurrence, state: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        """What every token reads of a state (b, h, t, e), and the state behind the last, (b, h, d,
        e); from `state` on.
        `chunk`: tokens that may be computed at once."""
        raise NotImplementedError


KERNELS = Registry("kernel", base=Kernel)


@KERNELS.register("auto")
class Auto(Kernel):
    """The fastest kernel that can compute the composition; `xformer describe` says which."""


def refusal(name: str, context: Context) -> str | None:
    """Why a kernel cannot compute the composition, or None."""
    asked = context.attn.computes
    if name != "auto" and asked not in KERNELS[name].computes:
        attn = f"attn '{context.names['attn']}'"
        if "scores" not in KERNELS[name].computes:
            return f"{attn} keeps no state, whose steps {name} computes"
        state = "keeps a state and " if asked == "recurrence" else ""
        return f"{attn} {state}has no scores that {name} could compute"
    fault = next(KERNELS.cannot({"name": name}, context), None)
    return None if fault is None else fault.rule


def choose(name: str, context: Context) -> str:
    """The name of the kernel that runs: `name` itself, or for auto the fastest that can."""
    if name != "auto":
        return name
    able = [n for n in KERNELS if n != "auto" and against(n, context) is None]
    return max(able, key=lambda n: KERNELS[n].speed)


def against(name: str, context: Context) -> str | None:
    """Why a kernel cannot train the composition, or None."""
    return refusal(name, context) or untrained(name, context.device)


def untrained(name: str, device: str) -> str | None:
    """Why a kernel cannot train on a kind of device, or None."""
    there = KERNELS[name].trains_on
    if there is None or device in there:
        return None
    return (
        f"{name} computes gradients only on {' and '.join(kind.upper() for kind in there)}, and"
        f" this is a {device.upper()}"
    )


def visible(context: AttentionContext, heads: int) -> Tensor | None:
    """True where the query sees the key, broadcasting to (b, h, q, k); None: all do."""
    return context.visible(heads)


def covers(context: AttentionContext, band: tuple[float, float] | None) -> bool:
    """Whether a band lets every query of the context see every key."""
    return context.covers(band)


def bias(context: AttentionContext, heads: int) -> Tensor:
    """The position's bias, broadcasting to (b, h, q, k)."""
    head = torch.arange(heads, device=context.query.slot.device).view(1, -1, 1, 1)
    return context.position.bias(context.query.as_query(), context.key.as_key(), head)
