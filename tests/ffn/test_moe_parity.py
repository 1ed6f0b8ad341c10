"""Mixtures of experts against those of transformers, with the same weights."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit.ffn import FFNS

transformers = pytest.importorskip("transformers")
DIM, WIDTH, EXPERTS, TOP_K = 12, 8, 6, 3
X = torch.randn(3, 7, DIM, generator=torch.Generator().manual_seed(0))
SIZES = {"hidden_size": DIM, "moe_intermediate_size": WIDTH, "num_experts_per_tok": TOP_K}


def made(expert=None, router=None, **options):
    node = {"name": "moe", "experts": EXPERTS, "top_k": TOP_K, "width": WIDTH, **options}
    node |= {
        "expert": {"name": "glu", **(expert or {})},
        "router": {"name": "softmax", **(router or {})},
    }
    return FFNS.create(node, dim=DIM, norm=nn.LayerNorm)


@torch.no_grad()
def alike(ours, theirs, shared=None, gate="gate"):
    """Draws every weight of theirs, and gives it to ours."""
    draw = torch.Generator().manual_seed(1)
    for tensor in (*theirs.parameters(), *theirs.buffers()):
        tensor.copy_(torch.randn(tensor.shape, generator=draw) * 0.6)
    router = getattr(theirs, gate)
    ours.router.weight.copy_(router.weight)
    halves = theirs.experts.gate_up_proj.chunk(2, 1)
    for name, half in zip(("gate", "up"), halves, strict=True):
        getattr(ours.experts, name).weight.copy_(half)
    ours.experts.down.weight.copy_(theirs.experts.down_proj)
    if shared:
        for name in ("gate", "up", "down"):
            getattr(ours.shared, name).weight.copy_(
                getattr(getattr(theirs, shared), f"{name}_proj").weight
            )
    return router


def same(ours, theirs):
    """The same output, and the same gradients of the input and of the router."""
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    out, other = ours(x)[0], theirs(y)
    other = other[0] if isinstance(other, tuple) else other
    assert_close(out, other, rtol=1e-4, atol=1e-4)
    draw = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    (out * draw).sum().backward()
    (other * draw).sum().backward()
    assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)
    assert ours.experts.down.weight.grad.abs().amax((1, 2)).min() > 0


def test_mixtral():
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    sizes = {"intermediate_size": WIDTH, "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K}
    theirs, ours = (
        MixtralSparseMoeBlock(transformers.MixtralConfig(hidden_size=DIM, **sizes)),
        made(),
    )
    alike(ours, theirs)
    same(ours, theirs)


@pytest.mark.parametrize("renormalise", [True, False])
def test_qwen3(renormalise):
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    config = transformers.Qwen3MoeConfig(num_experts=EXPERTS, norm_topk_prob=renormalise, **SIZES)
    theirs, ours = Qwen3MoeSparseMoeBlock(config), made(router={"renormalise": renormalise})
    alike(ours, theirs)
    same(ours, theirs)


def test_qwen2_whose_shared_expert_has_a_gate():
    from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock

    config = transformers.Qwen2MoeConfig(
        num_experts=EXPERTS,
        norm_topk_prob=False,
        shared_expert_intermediate_size=2 * WIDTH,
        **SIZES,
    )
    theirs, ours = (
        Qwen2MoeSparseMoeBlock(config),
        made(router={"renormalise": False}, shared=2, shared_gate=True),
    )
    alike(ours, theirs, "shared_expert")
    with torch.no_grad():
        ours.shared_gate.weight.copy_(theirs.shared_expert_gate.weight)
    same(ours, theirs)


@pytest.mark.parametrize("grouped", [False, True])
def test_deepseek_v2(grouped):
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

    config = transformers.DeepseekV2Config(
        num_attention_heads=4,
        n_routed_experts=EXPERTS,
        n_shared_experts=2,
        routed_scaling_factor=1.7,
        n_group=3,
        topk_group=2,
        topk_method="group_limited_greedy" if grouped else "greedy",
        **SIZES,
    )
    config.num_experts = EXPERTS
    router = {"renormalise": False, "scale": 1.7} | (
        {"groups": 3, "group_limit": 2} if grouped else {}
    )
    theirs, ours = DeepseekV2Moe(config), made(router=router, shared=2)
    alike(ours, theirs, "shared_experts")
    same(ours, theirs)


@pytest.mark.parametrize("renormalise", [True, False])
def test_deepseek_v3(renormalise):
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE

    config = transformers.DeepseekV3Config(
        n_routed_experts=EXPERTS,
        num_local_experts=EXPERTS,
        n_shared_experts=1,
        routed_scaling_factor=2.5,
        n_group=3,
        topk_group=2,
        norm_topk_prob=renormalise,
        **SIZES,
    )
    theirs = DeepseekV3MoE(config)
    router = {
        "name": "sigmoid",
        "groups": 3,
        "group_limit": 2,
        "group_score": "top2",
        "scale": 2.5,
        "correction": 0.001,
    }
    ours = made(router=router | {"renormalise": renormalise}, shared=1)
    gate = alike(ours, theirs, "shared_experts")
    plain = ours(X)[0]
    ours.router.correction_bias.copy_(gate.e_score_correction_bias)
    assert not torch.allclose(ours(X)[0], plain, atol=1e-2)  # it matters who is chosen
    same(ours, theirs)


def test_gpt_oss():
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP

    sizes = {"intermediate_size": WIDTH, "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K}
    theirs = GptOssMLP(transformers.GptOssConfig(hidden_size=DIM, **sizes))
    ours = made(
        {"bias": True, "activation": "gelu_quick", "clamp": 7.0, "offset": 1.0}, {"bias": True}
    )
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 2)  # beyond the clamp
        ours.router.weight.copy_(theirs.router.weight)
        ours.router.bias.copy_(theirs.router.bias)
        experts = theirs.experts
        for at, name in enumerate(("gate", "up")):  # columns of theirs alternate
            getattr(ours.experts, name).weight.copy_(
                experts.gate_up_proj[:, :, at::2].transpose(1, 2)
            )
            getattr(ours.experts, name).bias.copy_(experts.gate_up_proj_bias[:, at::2])
        ours.experts.down.weight.copy_(experts.down_proj.transpose(1, 2))
        ours.experts.down.bias.copy_(experts.down_proj_bias)
    same(ours, theirs)
