"""Numbers and pictures that a reader can check by hand."""

import math

import pytest
import torch

from xformer_kit.attention import ATTENTIONS
from xformer_kit.kernel import KERNELS
from xformer_kit.mask import MASKS, Causal, Full, SlidingWindow, matrix
from xformer_kit.norm import NORMS
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens

WEIGHTS = [[0.0033, 0.9964, 0.0004], [0.9067, 0.0431, 0.0502], [0.2563, 0.7156, 0.0281]]
OUTPUT = [
    [0.4630, -0.1485, -0.5602, 0.8561],
    [-0.7909, 0.4272, 1.5735, -1.3448],
    [0.1138, 0.0517, 0.0270, 0.1831],
]


@pytest.fixture
def textbook_example():
    """Returns three tokens of five channels, and the projections of one head of four channels, of
    an example in a textbook on attention.
    """
    torch.manual_seed(42)
    x = torch.randn(3, 5)
    w_k, w_q = torch.randn(5, 4), torch.randn(5, 4)
    return x, w_q, w_k, torch.randn(5, 4)


def self_attention_context(kernel, mask, length: int, heads: int = 1) -> AttentionContext:
    """Returns the context of self-attention over `length` tokens, without position."""
    tokens = Tokens(slot=torch.arange(length)[None], position=torch.arange(length)[None])
    context = AttentionContext(tokens, tokens, mask, POSITIONS.create("none"))
    return context._replace(prepared=kernel.prepare(context, heads, False, torch.float32))


def rounded(x):
    return [[round(value, 4) for value in row] for row in x.tolist()]


def test_the_weights_of_one_head(textbook_example):
    x, w_q, w_k, _ = textbook_example
    kernel = KERNELS["reference"]()
    q, k = (x @ w_q)[None, None], (x @ w_k)[None, None]
    weights = kernel.weights(q, k, self_attention_context(kernel, Full(), 3), scale=4**-0.5)
    # The text prints 0.9964 where the number is 0.99634940: one more than half a unit of its last
    # digit.
    torch.testing.assert_close(weights[0, 0], torch.tensor(WEIGHTS), rtol=0, atol=6e-5)
    assert weights[0, 0].argmax(-1).tolist() == [1, 0, 1]


@pytest.mark.parametrize("name", ["reference", "sdpa"])
def test_the_output_of_one_head(textbook_example, name):
    x, w_q, w_k, w_v = textbook_example
    kernel = KERNELS[name]()
    q, k, v = ((x @ w)[None, None] for w in (w_q, w_k, w_v))
    out = kernel(q, k, v, self_attention_context(kernel, Full(), 3), 4**-0.5)
    assert rounded(out[0, 0]) == OUTPUT


@pytest.mark.parametrize("name", ["reference", "sdpa"])
def test_the_attention_component_computes_the_same(textbook_example, name):
    x, w_q, w_k, w_v = textbook_example
    kernel = KERNELS[name]()
    node = ATTENTIONS.defaults("multi_head") | {"heads": 1, "head_dim": 4}
    attn = ATTENTIONS.create(
        node, dim=5, depth=0, layers=1, norm=lambda dim: NORMS.create("none"), kernel=kernel
    )
    with torch.no_grad():
        for linear, weight in ((attn.q, w_q), (attn.k, w_k), (attn.v, w_v)):
            linear.weight.copy_(weight.T)
        attn.o.weight.copy_(
            torch.eye(5, 4)
        )  # channel i of the head becomes channel i of the stream, and the fifth is empty
        out = attn(x[None], None, self_attention_context(kernel, Full(), 3))
    assert rounded(out[0, :, :4]) == OUTPUT
    assert out[0, :, 4].tolist() == [0, 0, 0]


# Masks: row i has a 1 for each token that token i sees.


def rows_of(node, length: int = 5):
    return matrix(MASKS.create(node), length).int().tolist()


def test_causal_worked_out():
    assert rows_of("causal", 4) == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
    ]


def test_sliding_window_worked_out():
    assert rows_of({"name": "sliding_window", "window": 2}) == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_a_window_of_one_is_the_token_itself():
    assert rows_of({"name": "sliding_window", "window": 1}, 3) == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_full_worked_out():
    assert rows_of("full", 2) == [[1, 1], [1, 1]]


def test_not_of_a_mask_worked_out():
    assert rows_of({"name": "not", "of": {"name": "causal"}}, 3) == [
        [0, 1, 1],
        [0, 0, 1],
        [0, 0, 0],
    ]


def test_all_of_worked_out():
    near = {"name": "sliding_window", "window": 2}
    assert rows_of(
        {"name": "all_of", "of": [{"name": "causal"}, {"name": "not", "of": near}]}, 4
    ) == [
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [1, 0, 0, 0],
        [1, 1, 0, 0],
    ]


def test_any_of_worked_out():
    itself, far = {"name": "sliding_window", "window": 1}, {"name": "sliding_window", "window": 2}
    tree = {
        "name": "any_of",
        "of": [itself, {"name": "all_of", "of": [{"name": "causal"}, {"name": "not", "of": far}]}],
    }
    assert rows_of(tree, 4) == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [1, 0, 1, 0],
        [1, 1, 0, 1],
    ]


def test_operators_are_the_components():
    assert Causal() & SlidingWindow(window=2) == MASKS.create(
        {"name": "all_of", "of": [{"name": "causal"}, {"name": "sliding_window", "window": 2}]}
    )
    assert ~Causal() == MASKS.create({"name": "not", "of": {"name": "causal"}})
    assert Causal() | Full() == MASKS.create(
        {"name": "any_of", "of": [{"name": "causal"}, {"name": "full"}]}
    )


def test_a_mask_prints_as_what_it_is():
    assert str(SlidingWindow(window=2)) == "SlidingWindow(window=2, causal=True)"


# Positions.


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (3, [2**-4, 2**-8, 2**-2]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
    ],
)
def test_alibi_slopes_worked_out(heads, slopes):
    assert POSITIONS.create("alibi", heads=heads).slope.tolist() == slopes


def test_alibi_bias_worked_out():
    at = Tokens(position=torch.arange(3)[None])
    alibi = POSITIONS.create("alibi", heads=2)
    bias = alibi.bias(at.as_query(), at.as_key(), torch.arange(2).view(1, -1, 1, 1))
    assert (bias[0, 0] * 16).tolist() == [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]]
    assert (bias[0, 1] * 256).tolist() == [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]]


def rotated(x, position: float, theta: float = 10_000.0):
    at = Tokens(slot=torch.zeros(1, 1).long(), position=torch.tensor([[position]]))
    rotary = POSITIONS.create({"name": "rotary", "theta": theta}, head_dim=len(x), max_len=64)
    return rotary.prepare(at, at).rotate(torch.tensor(x)[None, None, None], at)[0, 0, 0]


def test_rotary_rotates_a_pair_by_its_position():
    quarter = math.pi / 2
    assert rotated([1.0, 0.0], 0).tolist() == [1, 0]
    torch.testing.assert_close(rotated([1.0, 0.0], quarter), torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(rotated([0.0, 1.0], quarter), torch.tensor([-1.0, 0.0]))


def test_rotary_pairs_channel_i_with_i_plus_half_and_slows_down_with_i():
    """theta 4, four channels: pair 0 turns by the position, pair 1 by position / 2."""
    quarter = math.pi / 2
    torch.testing.assert_close(
        rotated([1.0, 0.0, 0.0, 0.0], quarter, theta=4.0), torch.tensor([0.0, 0.0, 1.0, 0.0])
    )
    half = math.sqrt(0.5)
    torch.testing.assert_close(
        rotated([0.0, 1.0, 0.0, 0.0], quarter, theta=4.0), torch.tensor([0.0, half, 0.0, half])
    )


@pytest.mark.parametrize(
    ("layout", "first", "second"),
    [
        (
            "interleaved",
            [0.0, 1.0, 0.0, 1.0],
            [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
        ),
        (
            "concatenated",
            [0.0, 0.0, 1.0, 1.0],
            [math.sin(1), math.sin(0.01), math.cos(1), math.cos(0.01)],
        ),
    ],
)
def test_sinusoidal(layout, first, second):
    """Pairs of a sine and a cosine; the second is 100 times slower for theta 10,000 and dim 4."""
    sinusoidal = POSITIONS.create({"name": "sinusoidal", "layout": layout}, dim=4)
    table = sinusoidal.embed(torch.zeros(1, 2, 4), Tokens(position=torch.arange(2)[None]))[0]
    assert table[0].tolist() == first
    torch.testing.assert_close(table[1], torch.tensor(second))


def test_sinusoids_of_far_positions_are_exact_to_fp32():
    sinusoidal = POSITIONS.create({"name": "sinusoidal", "theta": 100.0}, dim=6)
    table = sinusoidal.embed(torch.zeros(1, 1, 6), Tokens(position=torch.tensor([[99_999]])))[0, 0]
    angles = [99_999 * 100 ** (-2 * i / 6) for i in range(3)]
    expected = torch.tensor([wave(angle) for angle in angles for wave in (math.sin, math.cos)])
    torch.testing.assert_close(table, expected, rtol=0, atol=1e-7)


# Norms.


def test_rms_worked_out():
    rms = NORMS.create({"name": "rms", "eps": 0.0}, dim=2)
    torch.testing.assert_close(
        rms(torch.tensor([3.0, 4.0])), torch.tensor([3.0, 4.0]) / math.sqrt(12.5)
    )


def test_layer_norm_worked_out():
    layer = NORMS.create({"name": "layer", "eps": 0.0}, dim=2)
    torch.testing.assert_close(layer(torch.tensor([3.0, 7.0])), torch.tensor([-1.0, 1.0]))
