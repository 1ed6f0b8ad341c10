"""One layer of attention of x-transformers, and ours, in float64."""

import pytest
import torch
from torch import Tensor, nn

from xformer_kit.attention import ATTENTIONS
from xformer_kit.kernel import Reference
from xformer_kit.mask import Causal
from xformer_kit.norm import NORMS
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens

peer = pytest.importorskip("x_transformers.x_transformers")

DIM, HEADS, HEAD_DIM, LENGTH = 36, 6, 10, 11


def x() -> Tensor:
    """Returns random inputs (2, LENGTH, DIM)."""
    return torch.randn(2, LENGTH, DIM, generator=torch.Generator().manual_seed(2)).double()


def theirs(**flags) -> nn.Module:
    """Returns a causal layer of x-transformers with random parameters."""
    torch.manual_seed(5)
    layer = peer.Attention(DIM, **{"dim_head": HEAD_DIM, "heads": HEADS, "causal": True} | flags)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape) * (0.3 if p.ndim < 2 else p.shape[-1] ** -0.5))
    return layer.double().eval()


def state_of(layer: nn.Module) -> dict[str, Tensor]:
    """Returns the weights of the four projections by our names."""
    state = {f"{name}.weight": getattr(layer, f"to_{name}").weight for name in "qkv"}
    return state | ({"o.weight": layer.to_out.weight} if hasattr(layer.to_out, "weight") else {})


def ours(name: str = "multi_head", depth: int = 1, **options) -> nn.Module:
    """Returns our layer with its initial weights."""
    options = {"name": name, "heads": HEADS, "head_dim": HEAD_DIM} | options
    norm = {"name": "rms", "eps": 0.0}
    layer = ATTENTIONS.create(
        options,
        dim=DIM,
        depth=depth,
        layers=4,
        norm=lambda dim: NORMS.create(norm, dim=dim),
        kernel=Reference(),
    )
    return layer.double()


def run(
    layer: nn.Module,
    given: Tensor,
    cross_layer_state: dict | None = None,
    position: str = "none",
    values=None,
    **more,
) -> Tensor:
    """Returns the output of our layer for inputs (b, t, dim), with a causal mask."""
    tokens = Tokens(ids=torch.zeros(given.shape[:2], dtype=torch.long)).with_positions()
    place = POSITIONS.create(
        {"name": position} | more, dim=DIM, heads=HEADS, head_dim=HEAD_DIM, max_len=LENGTH, layers=4
    )
    context = AttentionContext(
        tokens,
        tokens,
        Causal(),
        place.prepare(tokens, tokens),
        depth=1,
        cross_layer_state={} if cross_layer_state is None else cross_layer_state,
        values=values,
    )
    traits = ATTENTIONS["multi_head"].traits({"heads": HEADS}, DIM)
    kernel = layer.kernel
    return layer(
        given,
        None,
        context._replace(prepared=kernel.prepare(context, traits.heads, False, torch.float64)),
    )
