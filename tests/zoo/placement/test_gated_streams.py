"""Placement gated_streams, and what streams have in common."""

import pytest
import torch
from placements import DIM, F, G, X, group, random_placement
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model
from xformer_kit.tensors.tokens import UNKNOWN

Y = X.roll(1, 0).flip(-1)


# Gated streams.


@pytest.mark.parametrize("sublayers", [[F], [F, G]])
def test_gated_streams_are_those_of_x_transformers(sublayers):
    library = pytest.importorskip("x_transformers.x_transformers")
    theirs = library.GatedMultiResidual(
        DIM, layer_index=2, num_residual_streams=3, read_gate_rank=5
    ).double()
    part = random_placement("gated_streams", ["attn"] * len(sublayers), streams=3, rank=5)
    state = X, Y, X.square()
    with torch.no_grad():
        for i, norm in enumerate(part.norm):
            norm.bias.zero_()
            theirs.read_gain[i] = norm.weight
        theirs.read_norm = torch.nn.LayerNorm(
            DIM, elementwise_affine=False
        ).double()  # the norm of `random_placement`
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
        got = part(state, group(*sublayers, factor=0.5), UNKNOWN)
    assert_close(got, expected)


def test_gated_streams_start_by_reading_one_after_another_and_writing_to_all():
    model = build_tiny_model(
        tiny_config(placement={"name": "gated_streams", "streams": 3, "rank": 4})
    )
    parts = [part for block in model.decoder.blocks for part in block.placement.values()]
    assert [part.read[:, 0].tolist() for part in parts] == [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [1, 0, 0],
    ]
    for part in parts:
        assert not part.to_read.any() and not part.to_write.any() and not part.write.any()
        state = (X[..., :1].expand(2, 3, 36).float(),) * 3
        first, second, _ = part(state, group(lambda h: h + 1), UNKNOWN)
        assert torch.equal(first, second)


@torch.no_grad()
@pytest.mark.parametrize("layout", [["attn"], [["attn", "ffn"]], ["ffn", "attn", "ffn"]])
def test_without_what_sublayers_say_all_streams_stay_the_embedding(layout):
    for name, factor in (("reversible", 1), ("gated_streams", 4), ("orthogonal", 1)):
        case = Composition(
            tiny_config(placement=name, final_norm=False, decoder={"layout": layout}), ""
        )
        model = case.model()
        for key, parameter in model.named_parameters():
            if key.endswith(("o.weight", "down.weight")) and "placement" not in key:
                parameter.zero_()
        assert_close(case.hidden(model, case.ids), factor * model.embed(case.ids))


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
    assert messages(faults(tiny_config(placement=node))) == [sentence]
