"""The attention layers of published models, as `transformers` has them, with the same weights: one
layer, causal, in float64.
"""

import os

import pytest
import torch
from torch import nn

from xformer_kit.attention import ATTENTIONS
from xformer_kit.kernel import Reference
from xformer_kit.mask import Causal
from xformer_kit.norm import NORMS
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

DIM, HEADS, KV, HEAD_DIM, LENGTH, THETA, DEPTH = 36, 6, 3, 10, 11, 100.0, 2
SIZES = {
    "hidden_size": DIM,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": HEAD_DIM,
    "attn_implementation": "eager",
}


def drawn(module: nn.Module) -> nn.Module:
    """With every parameter moved away from its start."""
    torch.manual_seed(5)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(
                torch.randn(p.shape) * (0.3 if p.ndim < 2 else p.shape[-1] ** -0.5) + (p.ndim < 2)
            )
    return module.double().eval()


def x() -> torch.Tensor:
    return torch.randn(2, LENGTH, DIM, generator=torch.Generator().manual_seed(2)).double()


def cos_and_sin(twice: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.arange(LENGTH)[:, None] * THETA ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angle = torch.cat([angle, angle], -1)[None] if twice else angle[None]
    return angle.cos(), angle.sin()


def theirs(layer: nn.Module, **more) -> torch.Tensor:
    hidden = torch.full((LENGTH, LENGTH), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    given = {"position_embeddings": cos_and_sin(), "attention_mask": hidden} | more
    return layer(x(), **given)[0]


def ours(
    state: dict,
    position: str = "rotary",
    norm: str = "rms",
    eps: float = 1e-6,
    name: str = "multi_head",
    **options,
):
    options = {"name": name, "heads": HEADS, "kv_heads": KV, "head_dim": HEAD_DIM} | options
    of_norm = {"name": norm, "eps": eps} | ({"bias": False} if norm == "layer" else {})
    kernel, place = (
        Reference(),
        {"name": position} | ({"theta": THETA} if position == "rotary" else {}),
    )
    layer = ATTENTIONS.create(
        options,
        dim=DIM,
        depth=DEPTH,
        layers=4,
        norm=lambda dim: NORMS.create(of_norm, dim=dim),
        kernel=kernel,
    ).double()
    layer.load_state_dict(state)  # strict: every parameter of ours comes from theirs
    tokens = Tokens(ids=torch.zeros(2, LENGTH, dtype=torch.long)).with_positions()
    table = POSITIONS.create(
        place, dim=DIM, heads=options["heads"], head_dim=HEAD_DIM, max_len=LENGTH, layers=4
    )
    context = AttentionContext(
        tokens, tokens, Causal(), table.prepare(tokens, tokens), depth=DEPTH, cross_layer_state={}
    )
    biased = "bias" in POSITIONS[position].enters
    return layer(
        x(),
        None,
        context._replace(prepared=kernel.prepare(context, options["heads"], biased, torch.float64)),
    )


def projections(layer: nn.Module, bias: str = "") -> dict:
    state = {f"{n}.weight": getattr(layer, f"{n}_proj").weight for n in "qkvo"}
    return state | {f"{n}.bias": getattr(layer, f"{n}_proj").bias for n in bias}


def gpt_oss():
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention

    layer = drawn(GptOssAttention(transformers.GptOssConfig(**SIZES, attention_bias=True), DEPTH))
    state = projections(layer, "qkvo") | {"score.sink": layer.sinks}
    expected = theirs(layer, position_embeddings=cos_and_sin(twice=False))
    return expected, ours(state, bias=True, score={"name": "softmax", "sinks": True})


def gemma2():
    from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention

    config = transformers.Gemma2Config(**SIZES, query_pre_attn_scalar=4, attn_logit_softcapping=1.5)
    layer = drawn(Gemma2Attention(config, DEPTH))
    return theirs(layer), ours(
        projections(layer), scale=0.5, score={"name": "softmax", "softcap": 1.5}
    )


def qwen2():
    from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention

    layer = drawn(Qwen2Attention(transformers.Qwen2Config(**SIZES), DEPTH))
    return theirs(layer), ours(projections(layer, "qkv"), bias=["q", "k", "v"])


def qwen3():
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

    layer = drawn(Qwen3Attention(transformers.Qwen3Config(**SIZES), DEPTH))
    state = projections(layer) | {
        f"{n}.weight": getattr(layer, n).weight for n in ("q_norm", "k_norm")
    }
    return theirs(layer), ours(state, qk_norm=True)


def qwen3_next():
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    layer = drawn(Qwen3NextAttention(transformers.Qwen3NextConfig(**SIZES), DEPTH))
    q, gate = layer.q_proj.weight.unflatten(0, (HEADS, 2, HEAD_DIM)).unbind(
        1
    )  # head by head, the query and its gate
    state = projections(layer) | {
        "q.weight": q.flatten(0, 1),
        "gate.input.weight": gate.flatten(0, 1),
    }
    state |= {f"{n}.weight": 1 + getattr(layer, n).weight for n in ("q_norm", "k_norm")}
    return theirs(layer), ours(state, qk_norm="head", gate="element")


def olmo2():
    from transformers.models.olmo2.modeling_olmo2 import Olmo2Attention

    config = transformers.Olmo2Config(**{**SIZES, "hidden_size": HEADS * HEAD_DIM})
    config.hidden_size = DIM
    config.head_dim = HEAD_DIM
    layer = drawn(Olmo2Attention(config, DEPTH))
    state = projections(layer) | {
        f"{n}.norm.weight": getattr(layer, n).weight for n in ("q_norm", "k_norm")
    }
    return theirs(layer), ours(state, qk_norm="projection", eps=config.rms_norm_eps)


def hunyuan():
    from transformers.models.hunyuan_v1_dense.modeling_hunyuan_v1_dense import (
        HunYuanDenseV1Attention,
    )

    layer = drawn(HunYuanDenseV1Attention(transformers.HunYuanDenseV1Config(**SIZES), DEPTH))
    state = projections(layer)
    state |= {
        "q_norm.weight": layer.query_layernorm.weight,
        "k_norm.weight": layer.key_layernorm.weight,
    }
    return theirs(layer), ours(
        state, qk_norm={"name": "head", "after": True}, eps=layer.query_layernorm.variance_epsilon
    )


def stablelm():
    from transformers.models.stablelm.modeling_stablelm import StableLmAttention

    rope = {"rope_type": "default", "rope_theta": THETA, "partial_rotary_factor": 1.0}
    config = transformers.StableLmConfig(
        **{**SIZES, "hidden_size": HEADS * HEAD_DIM},
        qk_layernorm=True,
        use_qkv_bias=True,
        rope_parameters=rope,
    )
    layer = StableLmAttention(config, DEPTH)
    for name in "qkv":
        setattr(layer, f"{name}_proj", nn.Linear(DIM, getattr(layer, f"{name}_proj").out_features))
    layer.o_proj = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)
    layer.hidden_size = HEADS * HEAD_DIM
    drawn(layer)
    state = projections(layer, "qkv")
    for name in "qk":
        norms = getattr(layer, f"{name}_layernorm").norms
        state |= {f"{name}_norm.{i}.weight": norm.weight for i, norm in enumerate(norms)}
    options = {"qk_norm": "each_head", "bias": ["q", "k", "v"]}
    return theirs(layer), ours(state, norm="layer", eps=config.layer_norm_eps, **options)


def olmo():
    from transformers.models.olmo.modeling_olmo import OlmoAttention

    config = transformers.OlmoConfig(**SIZES, clip_qkv=0.5)
    layer = drawn(OlmoAttention(config, DEPTH))
    assert (layer.q_proj(x()).abs() > 0.5).any()  # something is clipped
    with torch.no_grad():
        return theirs(layer), ours(projections(layer), clip=0.5)


def gpt2():
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    config = transformers.GPT2Config(
        n_embd=DIM, n_head=HEADS, scale_attn_by_inverse_layer_idx=True, attn_implementation="eager"
    )
    layer = drawn(GPT2Attention(config, layer_idx=DEPTH))
    state = {"o.weight": layer.c_proj.weight.t(), "o.bias": layer.c_proj.bias}
    for component in ("weight", "bias"):
        both = getattr(layer.c_attn, component).chunk(3, -1)
        state |= {
            f"{n}.{component}": values.t() if values.ndim > 1 else values
            for n, values in zip("qkv", both, strict=True)
        }
    hidden = torch.full((LENGTH, LENGTH), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    expected = layer(x(), attention_mask=hidden)[0]
    return expected, ours(state, "none", kv_heads=None, head_dim=None, bias=True, scale="by_layer")


LAYERS = [gpt_oss, gemma2, qwen2, qwen3, qwen3_next, olmo2, hunyuan, stablelm, olmo, gpt2]


@pytest.mark.every_case  # each is a reference
@pytest.mark.parametrize("pair", LAYERS, ids=lambda pair: pair.__name__)
def test_the_layer_is_equal(pair):
    expected, got = pair()
    torch.testing.assert_close(got, expected.to(got.dtype), rtol=1e-5, atol=1e-6)
