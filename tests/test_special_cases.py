"""Two configs with the same meaning compute the same, and trees of masks keep the laws."""

import re

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.tiny_composition import Composition, faults
from xformer_kit.laws.variants import CAUSAL, WINDOW
from xformer_kit.mask.base import HIDES_ALL
from xformer_kit.model.build import build_model


def logits(config, weights=None):
    """Returns the logits of a config with random weights, changed by the function `weights`."""
    composition = Composition(config, "")
    model = composition.model()
    if weights:
        model.load_state_dict(
            weights({name: value.clone() for name, value in model.state_dict().items()})
        )
    with torch.no_grad():
        return model(composition.ids)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_grouped_heads_are_multi_head_with_repeated_keys_and_values():
    grouped = (
        Composition(tiny_config(attn={"name": "multi_head", "kv_heads": 3, "bias": True}), "")
        .model()
        .state_dict()
    )

    def repeated(state):
        for name in state:
            if ".attn.k." in name or ".attn.v." in name:
                heads = grouped[name].unflatten(0, (3, 10))
                state[name] = heads.repeat_interleave(2, 0).flatten(0, 1)
            else:
                state[name] = grouped[name]
        return state

    multi = {"name": "multi_head", "kv_heads": 6, "bias": True}
    same(
        logits(tiny_config(attn=multi), repeated),
        logits(tiny_config(attn={**multi, "kv_heads": 3})),
    )


def test_kv_heads_equal_to_heads_is_kv_heads_null():
    same(
        logits(tiny_config(attn={"name": "multi_head", "kv_heads": 6})),
        logits(tiny_config(attn={"name": "multi_head", "kv_heads": None})),
    )


@pytest.mark.parametrize("window", [13, 14, 100])
@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
def test_a_window_as_long_as_the_sequence_is_causal(window, kernel):
    wide = tiny_config(mask={"name": "sliding_window", "window": window}, kernel=kernel)
    same(logits(wide), logits(tiny_config(mask="causal", kernel=kernel)))


@pytest.mark.parametrize(
    ("tree", "mask"),
    [
        ({"name": "all_of", "of": [CAUSAL]}, CAUSAL),
        ({"name": "any_of", "of": [WINDOW]}, WINDOW),
        ({"name": "not", "of": {"name": "not", "of": CAUSAL}}, CAUSAL),
        ({"name": "all_of", "of": [CAUSAL, {"name": "full"}]}, CAUSAL),
        ({"name": "any_of", "of": [CAUSAL, WINDOW]}, CAUSAL),
        ({"name": "any_of", "of": [CAUSAL, {"name": "not", "of": CAUSAL}]}, {"name": "full"}),
    ],
    ids=str,
)
def test_masks_that_mean_the_same_compute_the_same(tree, mask):
    same(logits(tiny_config(mask=tree)), logits(tiny_config(mask=mask)))


def test_a_gate_that_is_the_up_projection_is_a_square():
    """relu(x U) * x U is relu(x U)^2."""
    config = tiny_config(ffn={"name": "glu", "activation": "relu", "width": 19})

    def gate_is_up(state):
        return {name: state[name.replace(".gate.", ".up.")] for name in state}

    mlp = tiny_config(ffn={"name": "mlp", "activation": "relu2", "width": 19})
    same(logits(config, gate_is_up), logits(mlp))


def swapped(state):
    """Returns the weights with the names of gate and up exchanged."""
    other = {"gate": "up", "up": "gate"}
    return {n: state[re.sub(r"\.(gate|up)\.", lambda m: f".{other[m[1]]}.", n)] for n in state}


def test_which_half_of_a_glu_is_activated_is_a_matter_of_names():
    config = {"name": "glu", "width": 19}

    same(
        logits(tiny_config(ffn=config), swapped),
        logits(tiny_config(ffn={**config, "activated": "up"})),
    )


def test_a_bilinear_glu_ignores_which_matrix_is_the_gate():
    config = tiny_config(ffn={"name": "glu", "activation": "identity", "width": 19})

    same(logits(config, swapped), logits(config))


def test_a_scale_that_is_written_out_is_the_default():
    attn = {"name": "multi_head", "head_dim": 10}
    same(logits(tiny_config(attn={**attn, "scale": 10**-0.5})), logits(tiny_config(attn=attn)))


def test_a_layer_norm_of_centred_channels_without_bias_is_an_rms_norm():
    from xformer_kit.norm import NORMS

    x = torch.randn(3, 36, dtype=torch.float64)
    layer, rms = (
        NORMS.create({"name": name, "eps": 1e-6}, dim=36).double() for name in ("layer", "rms")
    )
    same(layer(x), rms(x - x.mean(-1, keepdim=True)))


def test_expand_is_width():
    same(
        logits(tiny_config(ffn={"name": "mlp", "width": None, "expand": 2.0})),
        logits(tiny_config(ffn={"name": "mlp", "width": 72})),
    )


def test_a_parallel_group_of_one_is_sequential():
    same(logits(tiny_config(decoder={"layout": [["attn"], ["ffn"]]})), logits(tiny_config()))


def test_a_variant_that_changes_nothing_is_the_base():
    pattern = {"pattern": ["base", "other"], "variants": {"other": {"attn": {"heads": 6}}}}
    same(logits(tiny_config(decoder=pattern)), logits(tiny_config()))


def test_rows_that_pad_the_vocabulary_have_no_logits_and_no_effect():
    config = tiny_config(vocab_multiple=64)
    assert build_model(config, 37).embed.weight.shape[0] == 64
    assert logits(config).shape[-1] == 37


# Random trees of masks.

SIZED = {
    "sliding_window": "window",
    "dilated": "step",
    "chunked": "chunk",
    "strided": "stride",
    "global_tokens": "count",
    "random_blocks": "block",
}
LEAVES = st.sampled_from([{"name": "full"}, CAUSAL]) | st.builds(
    lambda name, size, causal: {"name": name, SIZED[name]: size, "causal": causal},
    st.sampled_from(sorted(SIZED)),
    st.integers(1, 20),
    st.booleans(),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(
            lambda name, of: {"name": name, "of": of},
            st.sampled_from(["all_of", "any_of", "per_head"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda of: {"name": "not", "of": of}, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(TREES)
def test_traits_of_a_tree_of_masks_are_true(tree):
    assert LAWS["mask"](tiny_config(mask=tree)) is None


@pytest.mark.extended
@settings(max_examples=8, deadline=None, derandomize=True)
@given(TREES)
def test_kernels_agree_on_any_tree_of_masks(tree):
    config = tiny_config(mask=tree)
    assume(
        not any(HIDES_ALL in fault for fault in messages(faults(config)))
    )  # such a tree is refused with any kernel
    assert LAWS["kernels"](config) is None
