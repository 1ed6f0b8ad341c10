"""Initial weights depend on seed, name and shape, with the standard deviation of the init."""

import math

import pytest
import torch
from refusals import refused

from xformer_kit import build, compose
from xformer_kit.model.init_distributions import INITS, Matrix
from xformer_kit.model.initial_weights import generator
from xformer_kit.tensors import hidden

SIZES = [
    "task_defaults=null",
    "model.dim=96",
    "model.layers=3",
    "attn.heads=4",
    "ffn=mlp",
    "position=learned",
]


def built(*words):
    return build(compose([*SIZES, *words]), vocab_size=512).state_dict()


SCALING = [name for name in INITS if "depth_scaled" in INITS.options(name)]


def spread(name, **options):
    init = INITS.create({"name": name, **options}, dim=96, stacks={"decoder": 3})
    return lambda out, into: init.std(Matrix("embed.weight", (out, into), hidden()))


@pytest.mark.parametrize(
    ("name", "out", "into", "std"),
    [
        ("gpt2", 8, 2, 0.02),
        ("lecun", 8, 4, 0.5),
        ("kaiming", 8, 2, 1.0),
        ("xavier", 6, 2, 0.5),
        ("small", 6, 2, 1 / math.sqrt(240)),  # of a model of 96 channels
    ],
)
def test_the_standard_deviation_of_a_matrix_by_eye(name, out, into, std):
    assert math.isclose(spread(name)(out, into), std)


@pytest.mark.parametrize("name", INITS)
def test_drawn_matrices_have_that_standard_deviation(name):
    weights = built(f"init={name}", *(["init.depth_scaled=false"] if name in SCALING else []))
    of_depth = 1 / math.sqrt(2) if name == "depth_scaled" else 1.0  # of the second layer
    expected = spread(name)(384, 96) * of_depth
    assert weights["decoder.1.ffn.up.weight"].std().item() == pytest.approx(expected, rel=0.03)
    rows = 1.0 if name == "llama" else 0.02  # of what is looked up
    assert weights["embed.weight"].std().item() == pytest.approx(rows, rel=0.03)
    assert weights["decoder.position.base.weight"].std().item() == pytest.approx(rows, rel=0.03)


def test_depth_scaled_differs_from_xavier_by_its_factor():
    plain, scaled = (built(f"init={name}") for name in ("xavier", "depth_scaled"))
    half = built("init=depth_scaled", "init.alpha=0.5")
    for name, value in plain.items():
        if value.ndim < 2 or not name[len("decoder.")].isdigit():
            assert torch.equal(value, scaled[name])
            continue
        layer = name.split(".")[1]
        torch.testing.assert_close(scaled[name], value / math.sqrt(int(layer) + 1))
        torch.testing.assert_close(half[name], scaled[name] / 2)


@pytest.mark.parametrize("name", SCALING)
def test_matrices_that_write_to_the_residual_stream_shrink_with_their_number(name):
    plain, scaled = (
        built(f"init={name}", f"init.depth_scaled={flag}") for flag in ("false", "true")
    )
    for key, value in plain.items():
        residual = key.endswith((".o.weight", ".down.weight"))
        factor = 1 / math.sqrt(2 * 3) if residual else 1.0
        torch.testing.assert_close(scaled[key], value * factor)


def std(state, name):
    return state[name].std().item()


@pytest.mark.parametrize("depth", ["stack", "layer"])
def test_llama_divides_outputs_and_what_a_gate_multiplies(depth):
    """As `InitMethod.llama` and `llama_depth` of OLMo-core: w1 as the others, w2 and w3 as outputs,
    3 deviations at most.
    """
    words = ["init=llama", f"init.depth={depth}", "model.tie_embeddings=false"]
    state = built("ffn=glu", *words)
    # of a normal distribution that ends at 3 deviations, so much of the deviation is left
    cut = 0.9866
    for layer in range(3):
        divided = 0.02 / math.sqrt(2 * (3 if depth == "stack" else layer + 1))
        of = {
            "attn.q": 0.02,
            "attn.o": divided,
            "ffn.gate": 0.02,
            "ffn.up": divided,
            "ffn.down": divided,
        }
        for matrix, expected in of.items():
            found = state[f"decoder.{layer}.{matrix}.weight"]
            assert found.std().item() == pytest.approx(cut * expected, rel=0.03), matrix
            assert found.abs().max() <= 3 * expected
    assert std(state, "head.weight") == pytest.approx(cut * 96**-0.5, rel=0.03)
    assert std(state, "embed.weight") == pytest.approx(1.0, rel=0.03)
    assert state["embed.weight"].abs().max() > 3  # nothing is cut
    assert std(built(*words), "decoder.1.ffn.up.weight") == pytest.approx(
        cut * 0.02, rel=0.03
    )  # no gate in an mlp


def test_small_with_separate_output_standard_deviations():
    """As `initialize_weights` of litgpt: sqrt(2 / 5 / dim), and 1 / sqrt(dim) / layers for
    outputs.
    """
    state = built("init=small", "init.output=1", "init.embedding=null")
    for name, value in state.items():
        if value.ndim == 2:
            output = name.endswith((".o.weight", ".down.weight"))
            expected = 1 / math.sqrt(96) / 3 if output else math.sqrt(2 / 5 / 96)
            assert value.std().item() == pytest.approx(expected, rel=0.03), name
    plain = built("init=small", "init.embedding=null")
    assert torch.equal(plain["embed.weight"], state["embed.weight"])


def test_zero_outputs_make_a_model_the_identity():
    config = compose([*SIZES, "init=gpt2", "init.zero_output=true"])
    model, ids = build(config, vocab_size=512).eval(), torch.arange(40)[None]
    stack = model.stack
    expected = model.head(stack.norm(model.embed(ids) + stack.position.base.weight[:40]))
    torch.testing.assert_close(model(ids), expected)


def test_a_cut_draw_equals_torchs_truncated_normal():
    state = built("init=gpt2", "init.cut=1.5", "init.depth_scaled=false")
    for value in state.values():
        if value.ndim == 2:
            assert value.abs().max() <= 0.03
    name = "decoder.0.attn.q.weight"
    expected = torch.nn.init.trunc_normal_(
        torch.empty(96, 96), 0, 0.02, -0.03, 0.03, generator=generator(0, name)
    )
    assert torch.equal(state[name], expected)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("init=gpt2 init.cut=0", "init.cut: must be above 0; got 0. null is no limit."),
        ("init=small init.output=-1", "init.output: must be above 0; got -1."),
        (
            "init=small init.output=1 init.depth_scaled=true",
            (
                "init.depth_scaled: has no effect with init.output, which divides by the number of"
                " layers. Leave it false."
            ),
        ),
        (
            "init=llama init.depth=block",
            "init.depth: no choice is called 'block'. Known: stack, layer.",
        ),
    ],
)
def test_faults_have_the_expected_sentences(words, sentence):
    assert refused(words) == [sentence]


def test_one_seed_gives_every_init_the_same_draw():
    one, other = built("init=gpt2"), built("init=lecun")
    key = "decoder.2.attn.q.weight"
    torch.testing.assert_close(one[key] / 0.02, other[key] * math.sqrt(96))
