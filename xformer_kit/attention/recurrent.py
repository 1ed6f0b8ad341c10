"""What attentions share that keep a state in place of keys and values."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from xformer_kit.attention.base import Attention, Cache, device_and_dtype
from xformer_kit.kernel import Kernel
from xformer_kit.kernel.recurrence import Recurrence
from xformer_kit.model.fused_projections import FusedProjections
from xformer_kit.registry import Context, Fault, config_error, listed

Reason = tuple[str, list[str]]  # why something cannot be, and what could be in its place


class StateCache(Cache):
    """A few tensors, each (rows, ...), of a size that does not grow with the text: what the whole
    past comes to.
    """

    rewinds = False

    def __init__(self, *held: Tensor):
        self.held = list(held)
        # of a source that has several: to which each of `held` belongs
        self.documents: Tensor | None = None

    @classmethod
    def of(cls, attention: Attention, *shapes: tuple[int, ...]) -> "StateCache":
        """Zeros, in fp32 at least."""
        device, dtype = device_and_dtype(attention)
        wide = exact(torch.empty((), dtype=dtype, device="meta")).dtype
        return cls(*(torch.zeros(shape, dtype=wide, device=device) for shape in shapes))

    def append(self, *new: Tensor) -> list[Tensor]:
        """In place of what was held."""
        self.held = list(new)
        return self.held

    def select(self, rows: Tensor) -> None:
        self.held = [held.index_select(0, rows) for held in self.held]

    def rewind(self, n: int) -> None:
        if n:
            raise config_error(
                "rewind",
                "a state is one sum of the whole past, of which the newest cannot be taken back",
                got=f"{n} tokens",
                fix="Begin again with the prompt, or choose attn=multi_head.",
            )

    @property
    def bytes(self) -> int:
        return sum(held.numel() * held.element_size() for held in self.held)


class Recurrent(Attention):
    """Base of those whose past is a state that is written and read
    (`xformer_kit/kernel/recurrence.py`).

    of_any_order: whether it may also sum over all tokens, whatever their order: full masks and
    sources.
    """

    computes = "recurrence"
    of_any_order = False
    # set during generation: its projections `packs` as one product
    packed: FusedProjections | None = None
    kernel: Kernel
    chunk: int

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield from _of_source(cls, context)
            return
        places, hidden = cls.unplaced(context), _of_mask(cls, context)
        if not places or not hidden:
            why, ways = places or hidden or ("", [])
            if why:
                yield Fault("", why, fix=f"Choose {_in_short(ways)}.")
            return
        (why, positions), (other, (mask, *_)) = places, hidden
        yield Fault(
            "",
            f"{why}, and {other}",
            fix=f"Choose {listed(f'{mask} {position}' for position in positions)}.",
        )

    @classmethod
    def unplaced(cls, context: Context) -> Reason | None:
        """Why a position has no place in it, and the ways out, or None."""
        attn, position = context.names["attn"], context.names["position"]
        if not {"bias", "scores"} & set(context.position.enters):
            return None
        others = ["rotary"] * (context.attn.head_dim % 2 == 0) + [
            "learned",
            "sinusoidal",
            "none",
        ]
        return (
            (
                f"attn '{attn}' reads a sum over the past and forms no scores, which position"
                f" '{position}' changes one by one"
            ),
            [f"position={other}" for other in others],
        )

    def recurred(self, r: Recurrence, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """What every token reads (b, h, t, e), and the new state: in fp32 at least."""
        r = Recurrence(*(None if x is None else exact(x) for x in r))
        with unmixed(r.q):
            b, h, _, d = r.q.shape
            state = r.q.new_zeros(b, h, d, r.v.shape[-1]) if state is None else state.to(r.q.dtype)
            return self.kernel.recur(r, state, self.chunk)


def exact(x: Tensor) -> Tensor:
    """In fp32, where it is in half of that."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def unmixed(x: Tensor) -> Any:
    """Without autocast, which would compute sums over a text in half precision."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def _of_source(component: type[Recurrent], context: Context) -> Iterator[Fault]:
    attn, mask = context.names["attn"], context.names["mask"]
    if not component.of_any_order:
        yield Fault(
            "",
            f"attn '{attn}' hands its state from token to token in their order, in which those of"
            " another stack have no place",
            fix="Choose model.decoder.cross.name=multi_head.",
        )
        return
    whys, ways = [], []
    if unplaced := component.unplaced(context):
        whys, ways = [unplaced[0]], ["model.decoder.cross.position.name=none"]
    if context.mask.band != (math.inf, math.inf):
        whys.append(f"attn '{attn}' reads one sum over a source, of which mask '{mask}' hides some")
        ways.append("model.decoder.cross.mask.name=full")
    if whys:
        yield Fault("", ", and ".join(whys), fix=f"Choose {' '.join(ways)}.")


def _of_mask(component: type[Recurrent], context: Context) -> Reason | None:
    attn, mask, band = context.names["attn"], context.names["mask"], context.mask.band
    everything, past = (math.inf, math.inf), (math.inf, 0)
    if band == past or (component.of_any_order and band == everything):
        return None
    where = context.mask_path
    option = where if where == "mask" else f"{where}.name"
    ways = [f"{option}=causal"]
    if band == everything:
        return (
            (
                f"attn '{attn}' hands its state from token to token in their order, and mask"
                f" '{mask}' shows later ones"
            ),
            ways,
        )
    if component.of_any_order and context.stack == "encoder":
        ways.append(f"{option}=full")
    return (
        (
            f"attn '{attn}' reads one sum over the whole past, of which mask '{mask}' hides some or"
            " shows more"
        ),
        ways,
    )


def _in_short(ways: list[str]) -> str:
    """Values of one option, which is named once."""
    option = ways[0].partition("=")[0]
    return listed([ways[0], *(way.removeprefix(f"{option}=") for way in ways[1:])])


def real_of(tokens: Any) -> Tensor | None:
    """Padding of tokens as (b, 1, t, 1), None where there is none."""
    return None if tokens.real is None else tokens.real[:, None, :, None]
