"""Placements that keep apart what others add up, against their sources: several streams, what is
orthogonal, means.
"""

import pytest
import torch
from test_placement import DIM, F, G, X, made
from torch.testing import assert_close

from xformer_kit import compose
from xformer_kit.laws import faults, tiny
from xformer_kit.laws.case import Case
from xformer_kit.laws.case import made as make
from xformer_kit.model.tokens import UNKNOWN, Tokens
from xformer_kit.placement.orthogonal import across
from xformer_kit.placement.split import common
from xformer_kit.placement.streams import doubly_stochastic
from xformer_kit.registry import ConfigError

Y = X.roll(1, 0).flip(-1)


def halves(outputs):
    return 0.5 * sum(outputs)


# Reversible: section 3 of Reformer.


def test_two_halves_change_by_turns_and_can_be_computed_backwards():
    attention, network = (made("reversible", [kind]) for kind in ("attn", "ffn"))
    nets = network.norm[0], attention.norm[0]
    network.norm[0].weight.data *= 2  # another norm than that of attention
    y1 = X + 0.5 * F(nets[1](Y))
    y2 = Y + 0.5 * G(nets[0](y1))
    got = network(attention((X, Y), [F], halves, UNKNOWN), [G], halves, UNKNOWN)
    assert_close(got, (y1, y2))
    x2 = y2 - 0.5 * G(nets[0](y1))
    assert_close((y1 - 0.5 * F(nets[1](x2)), x2), (X, Y))
    assert_close(network.finish(got, lambda x: 3 * x), 1.5 * (y1 + y2))


def test_parallel_sublayers_and_single_ones_take_turns_alike():
    part = made("reversible", ["attn", "ffn"], shared=False)
    first, second = part.norm
    assert_close(part((X, Y), [F, G], halves, UNKNOWN), (Y, X + 0.5 * (F(first(Y)) + G(second(Y)))))


# What is orthogonal.


def test_what_is_added_is_orthogonal_to_the_stream():
    part = made("orthogonal", ["attn", "ffn"], shared=False, eps=1e-12)
    (got,) = part((X,), [F, G], halves, UNKNOWN)
    added = got - X
    assert_close((added * X).sum(-1), torch.zeros(X.shape[:-1], dtype=X.dtype))
    said = 0.5 * (F(part.norm[0](X)) + G(part.norm[1](X)))
    unit = X / X.norm(dim=-1, keepdim=True)
    assert_close(added, said - (unit[..., None] * unit[..., None, :] @ said[..., None])[..., 0])


def test_of_a_single_token_it_is_the_update_of_x_transformers():
    theirs = pytest.importorskip("x_transformers.x_transformers").OrthogonalResidualUpdate(DIM)
    part = made("orthogonal", ["attn"], eps=1e-12)
    x = X.flatten(0, 1)[:, None]  # each token a text of its own
    assert_close(part((x,), [F], sum, UNKNOWN)[0], theirs(F(part.norm[0](x)), x))


def test_eps_by_eye():
    x, y = torch.tensor([3.0, 0.0]), torch.tensor([1.0, 2.0])
    assert_close(across(y, x, 1.0), torch.tensor([0.1, 2.0]))
    assert across(y.bfloat16(), x.bfloat16(), 1.0).dtype == torch.bfloat16


# What tokens have in common.


def test_mean_and_difference_are_those_of_x_transformers():
    theirs = (
        pytest.importorskip("x_transformers.x_transformers").MVSplitResidualUpdate(DIM).double()
    )
    part = made("mv_split", ["attn"])
    theirs.alpha.data, theirs.beta.data = part.split[0].alpha.data, part.split[0].beta.data
    real = torch.tensor([[True, True, True], [True, True, False]])
    for mask in (None, real):
        (got,) = part((X,), [F], halves, Tokens(real=mask))
        expected = theirs(F(part.norm[0](X)), X, mask=mask)
        where = slice(None) if mask is None else mask
        assert_close(got[where], (X + 0.5 * (expected - X))[where])


def test_parallel_sublayers_have_factors_of_their_own():
    part = made("mv_split", ["attn", "ffn"], shared=False)
    expected = X
    for norm, split, f in zip(part.norm, part.split, (F, G), strict=True):
        y = f(norm(X))
        apart, both = y - y.mean(1, keepdim=True), (y - X).mean(1, keepdim=True)
        expected = expected + 0.5 * (split.beta * apart + split.alpha * both)
    assert_close(part((X,), [F, G], halves, UNKNOWN)[0], expected)


def test_a_mean_by_eye():
    x = torch.tensor([[1.0, 3, 10, 20, 60], [5, 7, 9, 11, 13]])[..., None]
    document = torch.tensor([[4, 4, 0, 0, 0], [1, 2, 2, 1, 1]])
    real = torch.tensor([[True, True, True, True, False], [False, True, True, True, True]])
    assert_close(common(x, None, None)[..., 0], torch.tensor([[18.8], [9.0]]))
    assert_close(common(x, real, None)[..., 0], torch.tensor([[8.5], [10.0]]))
    assert common(x, None, document)[..., 0].tolist() == [[2, 2, 30, 30, 30], [5, 8, 8, 12, 12]]
    assert common(x, real, document)[..., 0].tolist() == [[2, 2, 15, 15, 15], [0, 8, 8, 12, 12]]


def test_a_text_that_tokens_read_whole_is_not_predicted_word_by_word():
    with pytest.raises(
        ConfigError,
        match=r"^placement: 'mv_split' breaks the law of causality \(a mean over a whole text",
    ):
        compose(["placement=mv_split", "logger=none"])
    compose(["placement=mv_split", "model=encoder", "task=masked_language_modeling", "logger=none"])


# Streams whose mixing is doubly stochastic.


@pytest.mark.parametrize("sublayers", [[F], [F, G]])
def test_doubly_stochastic_mixing_is_that_of_deepseek_v4(sublayers):
    deepseek = pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4")
    config = deepseek.DeepseekV4Config(
        hidden_size=DIM, hc_mult=3, hc_sinkhorn_iters=4, hc_eps=0.0, rms_norm_eps=1e-6
    )
    theirs, streams = deepseek.DeepseekV4HyperConnection(config), [X, -X.roll(1, -1), X.square()]
    part = made(
        "hyper_connections",
        ["attn"] * len(sublayers),
        streams=3,
        mixing="doubly_stochastic",
        iterations=4,
    )

    def laid(
        rows,
        # ours lie stream by stream, theirs kind by kind: what is read, what is written, what is
        # mixed
    ):
        return torch.cat([rows[:, 0], rows[:, -1], rows[:, 1:-1].flatten(0, 1)])

    with torch.no_grad():
        theirs.fn.copy_(laid(part.dynamic.unflatten(0, (3, 5))))
        theirs.base.copy_(laid(torch.cat([part.alpha, part.beta[:, None]], 1)))
        theirs.scale.copy_(part.scale[[0, 2, 1]])
        post, comb, read = theirs(torch.stack(streams, 2))
        written = 0.3 * sum(f(part.norm[0](read)) for f in sublayers)
        expected = (
            comb.mT.double() @ torch.stack(streams, 2) + post[..., None] * written[..., None, :]
        )
        got = part(tuple(streams), sublayers, lambda outputs: 0.3 * sum(outputs), UNKNOWN)
    assert_close(torch.stack(got, 2), expected, rtol=1e-5, atol=1e-5)  # theirs is in float32


def test_sinkhorns_matrix_has_rows_and_columns_of_sum_1():
    logits = torch.randn(4, 4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mixed = doubly_stochastic(logits, 50)
    for axis in (0, 1):
        assert_close(mixed.sum(axis), torch.ones(4, 3, dtype=torch.float64))
    ratio = mixed.log() - logits  # what is left is a number for each row and one for each column
    assert_close(ratio - ratio[:1] - ratio[:, :1] + ratio[:1, :1], torch.zeros_like(ratio))


@torch.no_grad()
def test_doubly_stochastic_streams_stay_alike_at_the_start():
    """What is read is half the stream, and a thousandth of the others: the norm takes that away."""
    plain, several = (
        tiny(placement=node, norm={"name": "rms", "eps": 0.0})
        for node in (
            "pre",
            {"name": "hyper_connections", "streams": 3, "mixing": "doubly_stochastic"},
        )
    )
    case = Case(plain, "")
    expected, got = (
        case.read(make(config).double().eval(), case.ids) for config in (plain, several)
    )
    assert_close(got, expected)


# Gated streams.


@pytest.mark.parametrize("sublayers", [[F], [F, G]])
def test_gated_streams_are_those_of_x_transformers(sublayers):
    library = pytest.importorskip("x_transformers.x_transformers")
    theirs = library.GatedMultiResidual(
        DIM, layer_index=2, num_residual_streams=3, read_gate_rank=5
    ).double()
    part = made("gated_streams", ["attn"] * len(sublayers), streams=3, rank=5)
    state = X, Y, X.square()
    with torch.no_grad():
        for i, norm in enumerate(part.norm):
            norm.bias.zero_()
            theirs.read_gain[i] = norm.weight
        theirs.read_norm = torch.nn.LayerNorm(
            DIM, elementwise_affine=False
        ).double()  # the norm that `made` gives
        theirs.static_read_logit.copy_(part.read[None])
        theirs.static_write_logit.copy_(part.write)
        theirs.to_bottleneck.weight.copy_(part.bottleneck.weight)
        theirs.to_read_gate.weight.copy_(part.to_read)
        theirs.to_write_gate.weight.copy_(part.to_write)
        theirs.dynamic_gate_scale.copy_(part.scale[0])
        read, residuals, more = theirs.prepare(torch.stack(state, 1).flatten(0, 1))
        expected = (
            theirs(0.5 * sum(f(read) for f in sublayers), residuals, **more)
            .unflatten(0, (-1, 3))
            .unbind(1)
        )
        got = part(state, sublayers, halves, UNKNOWN)
    assert_close(got, expected)


def test_gated_streams_start_by_reading_one_after_another_and_writing_to_all():
    model = make(tiny(placement={"name": "gated_streams", "streams": 3, "rank": 4}))
    parts = [part for block in model.decoder.blocks for part in block.placement.values()]
    assert [part.read[:, 0].tolist() for part in parts] == [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [1, 0, 0],
    ]
    for part in parts:
        assert not part.to_read.any() and not part.to_write.any() and not part.write.any()
        first, second, _ = part(
            (X[..., :1].expand(2, 3, 36).float(),) * 3, [lambda h: h + 1], sum, UNKNOWN
        )
        assert torch.equal(first, second)


@torch.no_grad()
@pytest.mark.parametrize("layout", [["attn"], [["attn", "ffn"]], ["ffn", "attn", "ffn"]])
def test_without_what_sublayers_say_all_streams_stay_the_embedding(layout):
    for name, factor in (("reversible", 1), ("gated_streams", 4), ("orthogonal", 1)):
        case = Case(tiny(placement=name, final_norm=False, decoder={"layout": layout}), "")
        model = case.model()
        for key, parameter in model.named_parameters():
            if key.endswith(("o.weight", "down.weight")) and "placement" not in key:
                parameter.zero_()
        assert_close(case.read(model, case.ids), factor * model.embed(case.ids))


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (
            {"name": "gated_streams", "streams": 0},
            "placement.streams: must be at least 1 stream; got 0.",
        ),
        ({"name": "gated_streams", "rank": 0}, "placement.rank: must be at least 1; got 0."),
        ({"name": "orthogonal", "eps": 0.0}, "placement.eps: must be above 0; got 0.0. Try 1e-6."),
    ],
)
def test_what_cannot_be_is_answered(node, sentence):
    assert faults(tiny(placement=node)) == [sentence]
