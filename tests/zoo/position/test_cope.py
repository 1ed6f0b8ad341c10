"""Position cope: its equation written out."""

import math
import os

import pytest
import torch

from tests.messages import messages
from xformer_kit.laws import faults, tiny
from xformer_kit.laws.case import Case

os.environ.setdefault("HF_HUB_OFFLINE", "1")

LENGTH, HEADS, HEAD = 13, 6, 10


@torch.no_grad()
def attention(node: dict, model: str = "decoder", real: torch.Tensor | None = None):
    """The first attention, its position, its queries, keys and values (h, t, d) of the first row,
    and what its heads give.
    """
    attn = {
        "name": "multi_head",
        "heads": HEADS,
        "kv_heads": 3,
        "head_dim": HEAD,
        "bias": True,
        "scale": 0.4,
    }
    case = Case(tiny(model, attn=attn, position=node), "")
    built, held = case.model(), {}
    layer = built.stack.blocks[0].attn
    layer.register_forward_hook(
        lambda module, args, kwargs, out: held.update(x=args[0]), with_kwargs=True
    )
    layer.o.register_forward_pre_hook(lambda module, args: held.update(out=args[0]))
    case.read(built, case.ids[:1], real=real)
    q, k, v = (layer.split(p(held["x"]))[0] for p in (layer.q, layer.k, layer.v))
    k, v = (x.repeat_interleave(2, 0) for x in (k, v))
    place = built.stack.position[built.stack.groups[0].position]
    return layer, place, (q, k, v), held["out"][0].unflatten(-1, (HEADS, HEAD)).transpose(0, 1)


PAIRS = [(i, j) for i in range(LENGTH) for j in range(LENGTH)]

STACKS = pytest.mark.parametrize("model", ["decoder", "encoder"])


@STACKS
@torch.no_grad()
def test_cope_is_its_equation(model):
    """In an encoder a token counts all from j on, those behind itself too; padding is not
    counted.
    """
    real = torch.arange(LENGTH)[None] < 11
    _, place, (q, k, v), out = attention({"name": "cope", "longest": 4}, model, real)
    scores = torch.full((HEADS, LENGTH, LENGTH), -math.inf, dtype=torch.float64)
    for i, j in PAIRS:
        end = min(i + 1, 11) if model == "decoder" else 11
        if j >= end:
            continue
        gates = torch.sigmoid((q[:, i, None] * k[:, j:end]).sum(-1) * 0.4)
        at = gates.sum(-1).clamp(max=3)
        low, high = place.weight[at.floor().long()], place.weight[at.ceil().long()]
        share = (at - at.floor())[:, None]
        scores[:, i, j] = (q[:, i] * (k[:, j] + high * share + low * (1 - share))).sum(-1) * 0.4
    torch.testing.assert_close(out[:, :11], (scores.softmax(-1) @ v)[:, :11])


def test_what_is_refused():
    assert messages(faults(tiny(position={"name": "cope", "longest": 1}))) == [
        "position.longest: must be at least 2 counts; got 1."
    ]
    assert messages(faults(tiny(position="cope", kernel="sdpa"))) == [
        "kernel: 'sdpa' cannot: position 'cope' computes scores of its own, and sdpa computes"
        " them itself. Use kernel=auto or kernel=reference."
    ]
