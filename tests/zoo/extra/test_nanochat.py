"""The preset of nanochat with its four extras is its equations, written out."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit import build, compose
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import build_tiny_model

NAMES = ("smear", "residual_factors", "value_embeddings", "backout")
DIM, LAYERS, HEADS, KEY_HEADS, VOCAB, LENGTH, WINDOW = 48, 5, 4, 2, 61, 40, 7
HEAD_DIM = DIM // HEADS
WORDS = [
    "preset=nanochat_d12",
    f"model.dim={DIM}",
    f"model.layers={LAYERS}",
    f"model.decoder.variants.short.mask.window={WINDOW}",
    f"attn.heads={HEADS}",
    f"attn.kv_heads={KEY_HEADS}",
    f"attn.scale={1.44 * HEAD_DIM**-0.5}",
    f"data.seq_len={LENGTH}",
]


@pytest.fixture(scope="module")
def model():
    built = build(compose(WORDS), vocab_size=VOCAB).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            size = 0.3 if parameter.ndim < 2 else 0.4
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return built


def reference(p, ids):
    """Logits (b, t, vocab) of nanochat's equations with our weights, token by token where it is
    clearer.
    """
    dim, eps = (DIM,), torch.finfo(torch.float32).eps
    x = F.rms_norm(p["embed.weight"][ids], dim, eps=eps)
    gate = torch.sigmoid(x[..., :24] @ p["decoder.extra.smear.gate.weight"].T)
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    x = x + p["decoder.extra.smear.factor"] * gate * before
    first, middle = x, None
    factors = "decoder.extra.residual_factors."
    for i in range(LAYERS):
        x = p[f"{factors}own"][i] * x + p[f"{factors}first"][i] * first
        x = x + attention(p, i, F.rms_norm(x, dim, eps=eps), ids)
        h = F.rms_norm(x, dim, eps=eps) @ p[f"decoder.{i}.ffn.up.weight"].T
        x = x + h.relu().square() @ p[f"decoder.{i}.ffn.down.weight"].T
        middle = x if i == LAYERS // 2 else middle
    x = F.rms_norm(x - p["decoder.extra.backout.factor"] * middle, dim, eps=eps)
    return 15 * torch.tanh(x @ p["head.weight"][:VOCAB].T / 15)


def attention(p, i, h, ids):
    q, k, v = (
        (h @ p[f"decoder.{i}.attn.{name}.weight"].T).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
        for name in "qkv"
    )
    if i % 2 == (LAYERS - 1) % 2:
        layer = f"decoder.extra.value_embeddings.layers.{i}."
        gate = 3 * torch.sigmoid(h[..., :12] @ p[f"{layer}gate.weight"].T)
        added = p[f"{layer}table.weight"][ids].unflatten(-1, (KEY_HEADS, HEAD_DIM))
        v = v + (gate[..., None] * added).transpose(1, 2)
    q, k = (F.rms_norm(rotated(x), (HEAD_DIM,), eps=torch.finfo(x.dtype).eps) for x in (q, k))
    k, v = (x.repeat_interleave(HEADS // KEY_HEADS, 1) for x in (k, v))
    scores = 1.44 * HEAD_DIM**-0.5 * q @ k.mT
    distance = torch.arange(ids.shape[1])[:, None] - torch.arange(ids.shape[1])
    seen = (distance >= 0) & (distance < (LENGTH if i in (3, LAYERS - 1) else WINDOW))
    out = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
    return out.transpose(1, 2).flatten(2) @ p[f"decoder.{i}.attn.o.weight"].T


def rotated(x):
    """Pairs (i, i + d / 2) turned by position * 100000^(-2i / d)."""
    rates = 100000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angle = torch.arange(x.shape[-2])[:, None] * rates
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def test_the_four_are_the_equations_in_logits_and_gradients(model):
    ids = torch.randint(VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    parameters = dict(model.named_parameters())
    ours, theirs = model(ids), reference(parameters, ids)
    assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2))
    grads = [
        torch.autograd.grad((logits * weight).mean(), [*parameters.values()])
        for logits in (ours, theirs)
    ]
    for name, a, b in zip(parameters, *grads, strict=True):
        assert_close(a, b, rtol=1e-3, atol=1e-5 + 1e-4 * b.abs().max(), msg=name)


@torch.no_grad()
@pytest.mark.parametrize("splits", [(1,) * 12, (5, 1, 1, 4, 1)])
def test_they_are_the_equations_with_a_cache_too(model, splits):
    ids = torch.randint(VOCAB, (2, 12), generator=torch.Generator().manual_seed(3))
    cache, found, start = model.cache(2, 12), [], 0
    for n in splits:
        found.append(model(ids[:, start : start + n], cache=cache))
        start += n
    assert_close(
        torch.cat(found, 1), reference(dict(model.named_parameters()), ids), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", NAMES)
def test_each_keeps_the_laws(name):
    config = tiny_config(extra={name: {}}, attn="multi_head", placement="pre", dim=36)
    for law in ("causality", "documents", "padding", "batch", "cache", "select and rewind"):
        LAWS[law](config)


def test_values_need_an_attention_that_gives_them():
    (fault,) = messages(
        faults(tiny_config(extra={"value_embeddings": {}}, attn="gated_delta", position="none"))
    )
    assert fault == (
        "extra.value_embeddings: changes values, which attn 'gated_delta' does not give to extras."
        " Use attn=multi_head, or leave it out."
    )


def test_layers_with_and_without_a_module_of_an_extra_are_two_kinds():
    config = tiny_config(extra={"value_embeddings": {}}, layers=4)
    assert build_tiny_model(config).decoder.num_block_kinds == 2
    assert build_tiny_model(tiny_config(extra={"smear": {}}, layers=4)).decoder.num_block_kinds == 1
    LAWS["one graph"](config)
