"""Fused projections give the same numbers, and are removed after generation."""

import pytest
import torch

from xformer_kit import build, compose
from xformer_kit.tensors.fused_projections import transposed_is_faster, with_fused_projections

SMALL = [
    "task_defaults=null",
    "model.dim=24",
    "model.layers=2",
    "attn.heads=6",
    "attn.kv_heads=2",
    "data.seq_len=64",
]
IDS = torch.arange(14).view(2, 7)


def made(*words):
    model = build(compose([*SMALL, *words]), vocab_size=17).double().eval()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.add_(
                torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).double(), alpha=0.2
            )
    return model


def parts(model):
    return [*(m for m in model.modules() if getattr(m, "fusible", ())), model.head]


@pytest.mark.parametrize("tied", ["false", "true"])
@pytest.mark.parametrize("bias", ["false", "true"])
def test_fused_projections_equal_the_separate_maps(bias, tied):
    model = made(
        f"attn.bias={bias}",
        f"ffn.bias={bias}",
        f"model.head_bias={bias}",
        f"model.tie_embeddings={tied}",
    )
    expected = model(IDS)
    with torch.inference_mode(), with_fused_projections(model):
        assert all(part.fused_maps is not None for part in parts(model))
        torch.testing.assert_close(model(IDS), expected)
    assert all(part.fused_maps is None for part in parts(model))


@pytest.mark.parametrize("rows", [1, 2, 4, 8, 70])
@pytest.mark.parametrize("bias", ["false", "true"])
@pytest.mark.parametrize("ffn", ["mlp", "glu"])
def test_transposed_products_are_equal(rows, bias, ffn):
    model = made(f"ffn={ffn}", f"attn.bias={bias}", f"ffn.bias={bias}")
    ids = torch.arange(3 * rows).view(rows, 3) % 17
    expected = model(ids), model(ids[:, :1])
    with torch.inference_mode(), with_fused_projections(model, rows):
        for seen, wanted in zip((model(ids), model(ids[:, :1])), expected, strict=True):
            torch.testing.assert_close(seen, wanted)
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_the_transposed_product_is_used_for_few_rows_and_narrow_matrices():
    assert [transposed_is_faster(rows, 1536, 384) for rows in (2, 4, 5, 64, 65)] == [
        True,
        True,
        True,
        True,
        False,
    ]
    assert [transposed_is_faster(rows, 384, 1536) for rows in (2, 4, 5)] == [True, True, False]
    assert [transposed_is_faster(rows, 3072, 768) for rows in (4, 5)] == [True, False]


def test_maps_that_are_not_plain_are_unchanged():
    model = made()
    attention, network = model.decoder.blocks[0].attn, model.decoder.blocks[0].ffn
    seen = []
    attention.k.register_forward_hook(lambda *_: seen.append("k"))
    network.up = torch.nn.Sequential(network.up)
    with torch.inference_mode(), with_fused_projections(model):
        assert attention.fused_maps is None
        assert network.fused_maps is None
        model(IDS)
    assert seen == ["k"]


def test_nothing_is_fused_after_a_failure_or_if_the_copies_are_too_large(monkeypatch):
    model = made()
    with pytest.raises(KeyError), with_fused_projections(model):
        raise KeyError
    assert all(part.fused_maps is None for part in parts(model))
    monkeypatch.setattr("xformer_kit.tensors.fused_projections.MAX_COPY_BYTES", 100)
    with with_fused_projections(model):
        assert all(part.fused_maps is None for part in parts(model)[:-1])
        assert model.head.fused_maps.weight.data_ptr() == model.head.weight.data_ptr()  # no copy


def test_a_long_text_is_the_argmax_of_the_uncached_model():
    model = made()
    out = model.generate(IDS, max_new_tokens=40, temperature=0.0)
    again = model(out[:, :-1])[:, 6:].argmax(-1)
    assert out[:, 7:].tolist() == again.tolist()


def test_maps_that_generation_computes_once_are_not_fused():
    model = build(
        compose([*SMALL, "model=encoder_decoder", "task=seq2seq", "data=scan"]), vocab_size=17
    )
    with with_fused_projections(model):
        found = {
            name for name, m in model.named_modules() if getattr(m, "fused_maps", None) is not None
        }
    assert found
    assert all(
        name == "head" or (name.startswith("decoder.") and not name.endswith(".cross"))
        for name in found
    )
