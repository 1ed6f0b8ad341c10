"""Curves over the distance, mixed by the token that looks: those of x-transformers, and the
equation for later tokens.
"""

import pytest
import torch

from tests.messages import messages
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition

LENGTH, HEADS = 13, 6


@torch.no_grad()
def added(model: str, **options):
    """The position of the first attention, what that reads (b, t, dim), and what is added to its
    scores (b, h, q, k).
    """
    case = Composition(
        tiny_config(model, position={"name": "curves", "curves": 3, "longest": 5, **options}), ""
    )
    built, held = case.model(), {}
    place = built.stack.position[built.stack.attention_groups[0].position]
    read = place.read

    def watched(x, context, cache):
        made = read(x, context, cache)
        held.setdefault("seen", (x, made))
        return made

    place.read = watched
    case.hidden(built, case.ids)
    return place, *held["seen"]


@torch.no_grad()
def test_what_is_added_is_what_x_transformers_adds():
    theirs = pytest.importorskip("x_transformers.x_transformers").RelativeProjPositionalBias
    place, x, ours = added("decoder")
    other = theirs(36, HEADS, num_distance_basis=3, max_dist=5).double()
    other.to_distance_weights[0].weight.copy_(place.weight)
    other.to_distance_weights[0].bias.copy_(place.offset)
    other.distance_bank.copy_(place.curve)
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    torch.testing.assert_close(ours.masked_fill(~seen, 0), other(x).masked_fill(~seen, 0))


@pytest.mark.parametrize(
    ("model", "both"), [("encoder", None), ("decoder", True), ("encoder", False)]
)
def test_later_tokens_have_curves_of_their_own_or_nothing(model, both):
    place, x, ours = added(model, bidirectional=both)
    wants = (x @ place.weight.T + place.offset).unflatten(-1, (HEADS, 3))
    expected = torch.zeros_like(ours)
    for i in range(LENGTH):
        for j in range(LENGTH):
            if abs(i - j) < 5 and (both is not False or j <= i):
                column = i - j if j <= i else 5 + j - i
                expected[:, :, i, j] = wants[:, i] @ place.curve[:, column]
    torch.testing.assert_close(ours, expected)


def test_a_layer_has_curves_of_its_own_or_the_stack_one_set():
    names = [
        {
            name
            for name, _ in (
                Composition(
                    tiny_config(position={"name": "curves", "per_layer": for_each_layer}), ""
                )
                .model()
                .named_parameters()
            )
        }
        for for_each_layer in (True, False)
    ]
    assert {name for name in names[0] if "curve" in name} == {
        f"decoder.position.layer_{i}.curve" for i in range(2)
    }
    assert {name for name in names[1] if "curve" in name} == {"decoder.position.base.curve"}


def test_curves_are_as_long_as_the_texts_where_nothing_else_is_said():
    place = (
        Composition(tiny_config("encoder", position={"name": "curves", "curves": 3}), "")
        .model()
        .encoder.position["layer_0"]
    )
    assert (place.longest, place.curve.shape) == (29, (3, 2 * 29))


def test_sizes_are_checked():
    assert messages(
        faults(tiny_config(position={"name": "curves", "curves": 0, "longest": 0}))
    ) == [
        "position.curves: must be at least 1; got 0.",
        "position.longest: must be at least 1 token; got 0.",
    ]
