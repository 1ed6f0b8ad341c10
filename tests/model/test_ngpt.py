"""nGPT as components, against the equations of Loshchilov et al., 2024, arXiv:2410.01131, written
out.
"""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tasks.run.start import start_run
from xformer_kit import build, compose, load
from xformer_kit.ffn import FFNS
from xformer_kit.laws.tiny_composition import randomise

D, H, VOCAB, T = 24, 3, 31, 9
SMALL = [
    "experiment=ngpt",
    f"model.dim={D}",
    "model.layers=2",
    f"attn.heads={H}",
    "ffn.width=20",
    "logger=none",
]


def unit(x, axis=-1):
    return x / x.norm(dim=axis, keepdim=True)


def turned(x):
    """RoPE: channels i and i + d/2 as a complex number, times exp(i t 10000^(-2i/d))."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1)


def attention(p, h):
    q, k, v = (
        F.linear(h, p[f"{name}.weight"]).unflatten(-1, (H, -1)).transpose(1, 2) for name in "qkv"
    )
    s_q, s_k = (
        torch.stack([p[f"{name}_norm.{i}.weight"] for i in range(H)])[:, None] for name in "qk"
    )
    q, k = s_q * unit(turned(q)), s_k * unit(turned(k))  # eq. 15 and 16
    scores = (D // H) ** 0.5 * q @ k.mT  # section 2.3.2
    scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
    return F.linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), p["o.weight"])


def network(p, h):
    """Eq. 17 to 21, whose u is our up and whose v is our gate."""
    u, v = (
        F.linear(h, p["up.weight"]) * p["scales.1"],
        F.linear(h, p["gate.weight"]) * p["scales.0"] * D**0.5,
    )
    return F.linear(u * F.silu(v), p["down.weight"])


def inside(state, prefix):
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }


@torch.no_grad()
def test_the_model_is_the_equations_of_the_paper():
    model = build(compose(SMALL), vocab_size=VOCAB)
    randomise(model)
    for layer in model.decoder.blocks:  # as if training had pushed some below 0
        layer.placement["attn"].steps[0].weight[::2] *= -1
    model = model.double().eval()
    p, ids = (
        model.state_dict(),
        torch.randint(VOCAB, (2, T), generator=torch.Generator().manual_seed(0)),
    )
    h = unit(p["embed.weight"][ids])
    for layer in range(2):
        for kind, f in (("attn", attention), ("ffn", network)):
            alpha = (
                0.05 / D**-0.5 * p[f"decoder.{layer}.placement.{kind}.steps.0.weight"].abs()
            )  # not negative
            h = unit(
                h + alpha * (unit(f(inside(p, f"decoder.{layer}.{kind}."), h)) - h)
            )  # eq. 10 and 11
    logits = F.linear(h, p["head.weight"][:VOCAB]) * p["head.scales"][:VOCAB] / D**-0.5  # eq. 3
    assert_close(model(ids), logits, rtol=1e-6, atol=1e-6)  # RoPE's tables are in float32


def test_the_model_starts_with_the_factors_of_the_paper():
    model = build(compose(SMALL), vocab_size=VOCAB)
    step = model.decoder.blocks[1].placement["ffn"].steps[0]
    assert_close((step.factor * step.weight).detach(), torch.full((D,), 0.05))
    assert {model.decoder.blocks[0].attn.scale} == {(D // H) ** -0.5}


LENGTHS = {
    "embed": -1,
    "head": -1,
    "q": -1,
    "k": -1,
    "v": -1,
    "gate": -1,
    "up": -1,
    "o": 0,
    "down": 0,
}  # matrix -> axis


def lengths(model):
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            yield name, parameter.detach().norm(dim=LENGTHS[name.split(".")[-2]])


def test_weights_have_length_1_from_the_start_and_after_every_step(tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 80)
    config = compose(
        [
            *SMALL,
            "data=text",
            f"data.path={tmp_path / 'text.txt'}",
            "data.seq_len=16",
            "tokenizer=char",
            "optim.lr=0.1",
            "trainer.max_steps=2",
            "trainer.val_every=2",
            "trainer.checkpoint_every=2",
            "trainer.accelerator=cpu",
        ]
    )
    start = dict(lengths(build(config, vocab_size=VOCAB)))
    assert start_run(config, tmp_path / "run") == 0
    end = dict(lengths(load(tmp_path / "run")))
    assert len(start) == len(end) == 2 + 2 * 7
    for found in (*start.values(), *end.values()):
        assert_close(found, torch.ones_like(found))


def test_experts_are_normalised_like_dense_networks():
    model = build(compose([*SMALL, "ffn=moe", "ffn.width=20"]), vocab_size=VOCAB)
    experts = model.decoder.blocks[0].ffn.experts
    for matrix, axis in ((experts.up, 2), (experts.gate, 2), (experts.down, 1)):
        found = matrix.weight.detach().norm(dim=axis)
        assert_close(found, torch.ones_like(found))


@pytest.mark.parametrize("activated", ["gate", "up"])
def test_the_activated_product_is_multiplied_by_the_root_of_dim(activated):
    component = FFNS.create(
        {"name": "glu", "width": 5, "scales": True, "activated": activated}, dim=16
    )
    x = torch.randn(1, 2, 16, generator=torch.Generator().manual_seed(0))
    gate, up = component.gate(x), component.up(x)
    h = F.silu(4 * gate) * up if activated == "gate" else F.silu(4 * up) * gate
    assert_close(component(x)[0], component.down(h))
    mlp = FFNS.create({"name": "mlp", "width": 5, "scales": True}, dim=16)
    assert_close(mlp(x)[0], mlp.down(F.gelu(4 * mlp.up(x))))
