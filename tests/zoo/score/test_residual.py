"""score residual: scores of the layer before are added."""

import pytest
import torch
from refusals import refusals_with
from torch.testing import assert_close

from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition

HEADS = 6
RESIDUAL = {"name": "multi_head", "kv_heads": HEADS, "score": {"name": "residual"}}


@torch.no_grad()
def read(model: str, layers: int = 3, **changes):
    """Queries, keys and values (h, t, d) of each layer's attention, and what its heads give, of one
    row.
    """
    case = Composition(tiny_config(model, attn=RESIDUAL, layers=layers, **changes), "")
    built, held = case.model(), []
    for block in built.stack.blocks:
        held.append({})
        block.attn.register_forward_hook(
            lambda m, args, kwargs, out, at=held[-1]: at.update(x=args[0]), with_kwargs=True
        )
        block.attn.o.register_forward_pre_hook(lambda m, args, at=held[-1]: at.update(out=args[0]))
    case.hidden(built, case.ids[:1])
    for block, at in zip(built.stack.blocks, held, strict=True):
        at["qkv"] = [
            block.attn.split(p(at["x"])) for p in (block.attn.q, block.attn.k, block.attn.v)
        ]
        at["out"] = at["out"].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    return held


@pytest.mark.parametrize("model", ["decoder", "encoder"])
def test_scores_of_the_layer_before_are_added_as_in_x_transformers(model):
    attend = pytest.importorskip("x_transformers.attend").Attend(
        heads=HEADS, causal=model == "decoder"
    )
    before = None
    for at in read(model, position="none"):
        expected, kept = attend(*at["qkv"], prev_attn=before)
        before = (
            kept.qk_similarities
        )  # with those before, and without the mask, which is theirs in each layer
        assert_close(at["out"], expected, atol=1e-5, rtol=1e-5)  # their softmax is in fp32


def test_layers_with_other_heads_have_scores_of_their_own():
    """The second of three layers has three heads: the third goes on with the first."""
    variants = {"few": {"attn": {"heads": 3, "kv_heads": 3, "head_dim": 20}}}
    first, _, third = read(
        "encoder",
        position="none",
        encoder={"pattern": ["base", "few", "base"], "variants": variants},
    )
    total = sum(q @ k.mT / 10**0.5 for q, k, _ in (first["qkv"], third["qkv"]))
    assert_close(third["out"], total.softmax(-1) @ third["qkv"][2])


@pytest.mark.parametrize(
    "law", ["cache", "cache with padding", "source once", "documents", "rebuild"]
)
def test_laws(law):
    config = tiny_config(
        "encoder_decoder", attn=RESIDUAL, encoder={"position": "none"}, position="alibi"
    )
    assert not faults(config)
    assert LAWS[law](config) is None


REFUSED = {
    "attn.score.name=residual kernel=sdpa": (
        "kernel: 'sdpa' cannot: attn.score is residual, and sdpa computes only softmax."
    ),
}


test_refused_configs = refusals_with(REFUSED)
