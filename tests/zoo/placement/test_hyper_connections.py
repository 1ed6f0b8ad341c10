"""Placement hyper_connections: sections 2.1 to 2.3 of the paper, and mHC."""

import pytest
import torch
from placements import DIM, F, G, X, group, random_placement, result
from torch.testing import assert_close

from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model
from xformer_kit.optim import parameter_groups
from xformer_kit.tensors.tokens import UNKNOWN
from xformer_kit.zoo.placement.hyper_connections import doubly_stochastic


def connected(p, h, sublayers, m):
    """Eq. 2 and 10 to 13, as matrices (b, t, n, .) of the streams h (b, t, n, d)."""
    n = h.shape[-2]
    a, b = p.alpha, p.beta[:, None]
    if p.dynamic is not None:
        own = torch.tanh(p.each(h) @ p.dynamic.T)
        a, b = a + p.scale[0] * own[..., : n + 1], b + p.scale[1] * own[..., n + 1 :]
    a_m, a_r = a[..., :1], a[..., 1:]
    read = (a_m.mT @ h)[..., 0, :]
    written = m * sum(f(p.norm[0](read)) for f in sublayers)
    return a_r.mT @ h + b * written[..., None, :]


@pytest.mark.parametrize("sublayers", [[F], [F, G]])
@pytest.mark.parametrize(("streams", "dynamic"), [(1, True), (3, True), (4, False)])
def test_hyper_connections_are_their_matrices(streams, dynamic, sublayers):
    part = random_placement(
        "hyper_connections", ["attn"] * len(sublayers), streams=streams, dynamic=dynamic
    )
    h = X[..., None, :].expand(-1, -1, streams, -1)
    for _ in range(2):
        h = connected(part, h, sublayers, 0.3)
    assert_close(result(part, sublayers, 0.3), 3 * h.sum(-2))
    assert_close(torch.stack(result(part, sublayers, 0.3, finish=False), -2), h)


@torch.no_grad()
@pytest.mark.parametrize("options", [{"streams": 3}, {"streams": 2, "dynamic": False}])
def test_a_model_of_hyper_connections_starts_as_one_with_pre(options):
    """Eq. 14: all streams are then one, and their sum is n of it."""
    plain, several = (
        tiny_config(placement=node, final_norm=False)
        for node in ("pre", {"name": "hyper_connections", **options})
    )
    case = Composition(plain, "")
    expected, sums = (
        case.hidden(build_tiny_model(config).double().eval(), case.ids)
        for config in (plain, several)
    )
    assert_close(sums, options["streams"] * expected)


def test_sublayers_start_by_reading_one_stream_after_another():
    """Two layers of attention and a network with three streams: 0, 1, 2, and 0 again."""
    model = build_tiny_model(tiny_config(placement={"name": "hyper_connections", "streams": 3}))
    read = [
        part.alpha[:, 0].tolist()
        for block in model.decoder.blocks
        for part in block.placement.values()
    ]
    assert read == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_what_hyper_connections_share_among_tokens_does_not_decay():
    model = build_tiny_model(tiny_config(placement="hyper_connections", layers=1))
    decayed, free = parameter_groups(model, 0.1)
    names = [
        {name.rsplit(".", 1)[-1] for name, _ in g["params"] if ".placement." in name}
        for g in (decayed, free)
    ]
    assert names == [{"dynamic"}, {"alpha", "beta", "scale", "weight"}]


@pytest.mark.parametrize("sublayers", [[F], [F, G]])
def test_doubly_stochastic_mixing_is_that_of_deepseek_v4(sublayers):
    deepseek = pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4")
    config = deepseek.DeepseekV4Config(
        hidden_size=DIM, hc_mult=3, hc_sinkhorn_iters=4, hc_eps=0.0, rms_norm_eps=1e-6
    )
    theirs, streams = deepseek.DeepseekV4HyperConnection(config), [X, -X.roll(1, -1), X.square()]
    part = random_placement(
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
        got = part(tuple(streams), group(*sublayers, factor=0.3), UNKNOWN)
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
        tiny_config(placement=node, norm={"name": "rms", "eps": 0.0})
        for node in (
            "pre",
            {"name": "hyper_connections", "streams": 3, "mixing": "doubly_stochastic"},
        )
    )
    case = Composition(plain, "")
    expected, got = (
        case.hidden(build_tiny_model(config).double().eval(), case.ids)
        for config in (plain, several)
    )
    assert_close(got, expected)
