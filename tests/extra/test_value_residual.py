"""extra.value_residual: by equation, equal to x-transformers', and what is refused."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close
from x_attention import DIM, HEAD_DIM, HEADS, LENGTH, ours, run, state_of, theirs, x

from xformer_kit.extra import ExtraInput
from xformer_kit.extra.value_residual import MixedValues
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.tiny_composition import LENGTH as TEXT
from xformer_kit.laws.tiny_composition import VOCAB, randomise
from xformer_kit.model.build import build_model
from xformer_kit.tensors.tokens import UNKNOWN

IDS = torch.arange(2 * TEXT).view(2, TEXT) % VOCAB


def model_of(mix, **changes):
    model = build_model(
        tiny_config(
            attn="multi_head", position="none", extra={"value_residual": {"mix": mix}}, **changes
        ),
        VOCAB,
    )
    randomise(model)
    return model.double().eval()


def values_of(model):
    """Of each layer: the values (b, kv, t, d) that its kernel sums, and their projections."""
    found, projected = [], []
    for block in model.decoder.layers:
        attn = block.attn

        def kernel(q, k, v, *rest, attn=attn, kernel=attn.kernel):
            found.append(v)
            return kernel(q, k, v, *rest)

        attn.kernel = kernel
        attn.v.register_forward_hook(
            lambda _, args, out, attn=attn: projected.append(attn.split(out))
        )
    with torch.no_grad():
        model(IDS)
    return found, projected


@pytest.mark.parametrize("mix", ["fixed", "learned"])
def test_values_of_the_first_layer_are_mixed_in(mix):
    model = model_of(mix, layers=3)
    held, projected = values_of(model)
    assert_close(held[0], projected[0])
    for depth in (1, 2):
        layer = model.decoder.extra.value_residual.layers[str(depth)]
        a, b = layer.factors if mix == "learned" else (0.5, 0.5)
        assert_close(held[depth], (a * projected[0] + b * projected[depth]).detach())


def test_layers_whose_values_have_another_shape_have_a_first_of_their_own():
    pattern = {
        "pattern": ["base", "other", "other"],
        "variants": {"other": {"attn": {"kv_heads": 1}}},
    }
    held, projected = values_of(model_of("fixed", layers=3, decoder=pattern))
    assert_close(held[0], projected[0])
    assert_close(held[1], projected[1])
    assert_close(held[2], (projected[1] + projected[2]) / 2)


@torch.no_grad()
def test_a_mix_made_of_the_token_is_that_of_x_transformers():
    layer, mine = theirs(learned_value_residual_mix=True), ours()
    mine.load_state_dict(state_of(layer))
    mixed = MixedValues("token", DIM, HEADS).double()
    mixed.gate.load_state_dict(layer.to_value_residual_mix[0].state_dict())
    first = torch.randn(2, HEADS, LENGTH, HEAD_DIM).double()
    given = ExtraInput(UNKNOWN, UNKNOWN, cross_layer_state={f"values {(HEADS, HEAD_DIM)}": first})
    got = run(mine, x(), values=lambda v, x: mixed.values(v, x, given))
    assert_close(got, layer(x(), value_residual=first), rtol=1e-5, atol=1e-6)


def test_blocks_that_layers_share_have_the_factors_of_the_first_layer():
    model = model_of("learned", layers=4, unique_layers=2)  # the blocks of layers 0 and 2
    assert list(model.decoder.extra.value_residual.layers) == ["0", "2"]


@pytest.mark.parametrize("mix", ["fixed", "learned", "token"])
def test_a_second_attention_of_the_first_layer_and_a_second_call_of_its_block_are_mixed(mix):
    twice = model_of(mix, layers=1, decoder={"layout": ["attn", "attn", "ffn"]})
    shared = model_of(mix, layers=2, unique_layers=1)
    for model in (twice, shared):
        assert list(model.decoder.extra.value_residual.layers) == ["0"]
        out = model(IDS)
        if mix == "fixed":
            model.decoder.extra.value_residual.layers["0"].fixed.copy_(torch.tensor([0.0, 1.0]))
        else:
            with torch.no_grad():
                for p in model.decoder.extra.parameters():
                    p.add_(1)
        assert (model(IDS) - out).abs().max() > 1e-4


@pytest.mark.extended
@pytest.mark.parametrize("mix", ["fixed", "learned", "token"])
@pytest.mark.parametrize("shared", [{}, {"layers": 3, "unique_layers": 2}, {"unique_layers": 1}])
def test_layers_share_one_graph(mix, shared):
    config = tiny_config(attn="multi_head", extra={"value_residual": {"mix": mix}}, **shared)
    assert LAWS["one graph"](config) is None


@pytest.mark.extended
@pytest.mark.parametrize("attn", ["laser", "exclusive", "persistent_memory"])
@pytest.mark.parametrize("law", ["cache", "gradients", "kernels", "one graph"])
def test_laws_with_other_attentions(law, attn):
    config = tiny_config(attn=attn, extra={"value_residual": {"mix": "token"}})
    LAWS[law](config)


FIRST = (
    "mixes values of the first attention into those of later ones with as many key heads and"
    " channels, and there is none. Try model.layers=2, or leave it out."
)
test_refused_configs = refusals(
    {
        "extra.value_residual={} model.layers=1": f"extra.value_residual: {FIRST}",
        "extra.value_residual.mix=token model.decoder.variants.a.attn.kv_heads=1"
        " model.decoder.first=[a]": (
            "extra.value_residual.mix: 'token' needs attentions with equally many key heads and"
            " channels in all layers. Try learned."
        ),
        "extra.value_residual.mix=tokn": (
            "extra.value_residual.mix: no choice is called 'tokn'. Did you mean 'token'? Known:"
            " fixed, learned, token."
        ),
    }
)
