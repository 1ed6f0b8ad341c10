"""The first attention of a model whose position computes scores from queries and keys."""

import math

import pytest
import torch

from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition

LENGTH, HEADS, HEAD = 13, 6, 10


@torch.no_grad()
def attention(node: dict, model: str = "decoder", real: torch.Tensor | None = None):
    """Returns the first attention, its position, (queries, keys, values), and the output of its
    heads.

    Queries, keys, values and output are (h, t, d), of the first row of the batch.
    """
    attn = {
        "name": "multi_head",
        "heads": HEADS,
        "kv_heads": 3,
        "head_dim": HEAD,
        "bias": True,
        "scale": 0.4,
    }
    composition = Composition(tiny_config(model, attn=attn, position=node), "")
    built, held = composition.model(), {}
    layer = built.stack.blocks[0].attn
    layer.register_forward_hook(
        lambda module, args, kwargs, out: held.update(x=args[0]), with_kwargs=True
    )
    layer.o.register_forward_pre_hook(lambda module, args: held.update(out=args[0]))
    composition.hidden(built, composition.ids[:1], real=real)
    q, k, v = (layer.split(p(held["x"]))[0] for p in (layer.q, layer.k, layer.v))
    k, v = (x.repeat_interleave(2, 0) for x in (k, v))
    place = built.stack.position[built.stack.attention_groups[0].position]
    return layer, place, (q, k, v), held["out"][0].unflatten(-1, (HEADS, HEAD)).transpose(0, 1)


def mixed(scores: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Returns softmax(scores) v, with later keys hidden if causal."""
    if causal:
        scores = scores.masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


PAIRS = [(i, j) for i in range(LENGTH) for j in range(LENGTH)]
STACKS = pytest.mark.parametrize("model", ["decoder", "encoder"])
