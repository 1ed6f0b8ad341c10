"""A network of the distance, with x-transformers' weights, and by its equation where tokens stand
anywhere.
"""

import pytest
import torch

from tests.messages import messages
from xformer_kit.kernel.base import bias
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens

HEADS, DIM = 3, 20


@torch.no_grad()
def made(**node):
    place = POSITIONS.create({"name": "dynamic", **node}, dim=DIM, heads=HEADS).double()
    for i, p in enumerate(place.parameters()):
        p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(i)))
    return place


def added(place, query: Tokens, key: Tokens) -> torch.Tensor:
    return bias(AttentionContext(query, key, None, place.prepare(query, key)), HEADS)


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("norm", [True, False])
@torch.no_grad()
def test_the_bias_is_that_of_x_transformers(log, norm):
    theirs = pytest.importorskip("x_transformers.x_transformers").DynamicPositionBias(
        DIM // 4, heads=HEADS, depth=2, log_distance=log, norm=norm
    )
    place = made(log=log, norm=norm)
    linears = [m for m in theirs.modules() if isinstance(m, torch.nn.Linear)]
    for other, ours in zip(linears, [*place.hidden, place.down], strict=True):
        other.weight.copy_(ours.weight)
        other.bias.copy_(ours.bias) if ours.bias is not None else other.bias.zero_()
    if norm:
        first, second = (block[1] for block in theirs.mlp[:2])
        place.norms[0].bias.zero_()  # their first norm has none
        first.gamma.copy_(place.norms[0].weight)
        second.load_state_dict(place.norms[1].state_dict())
    tokens = Tokens(slot=torch.arange(9)[None], position=torch.arange(9)[None])
    tokens = tokens._replace(position=tokens.slot)
    torch.testing.assert_close(added(place, tokens, tokens)[0].float(), theirs(9, 9))


@torch.no_grad()
def test_the_bias_is_its_equation_wherever_tokens_stand():
    place = made(hidden=1, activation="relu", width=4)
    at, there = torch.tensor([[3, 7, 40], [0, 1, 2]]), torch.tensor([[5, 0, 7, 9], [2, 2, 30, 0]])
    got = added(place, Tokens(slot=at, position=at), Tokens(slot=there, position=there))
    (layer,) = place.hidden
    for row in range(2):
        for i in range(3):
            for j in range(4):
                x = float(at[row, i] - there[row, j])
                x = torch.tensor([x]).double().abs().log1p() * (1 if x > 0 else -1 if x < 0 else 0)
                expected = place.down.weight @ (layer.weight @ x + layer.bias).relu()
                torch.testing.assert_close(got[row, :, i, j], expected)


def test_half_precision_tells_distances_apart():
    """bf16 knows 1,000 and 1,001 as one number; distances are seen in fp32."""
    tokens = Tokens(slot=torch.arange(1002)[None])
    tokens = tokens._replace(position=tokens.slot)
    half = made(log=False).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        heights = half.prepare(tokens, tokens).values
    assert (heights[1001 + 1000] != heights[1001 + 1001]).all()


@pytest.mark.parametrize("law", ["cache with padding", "documents"])
def test_laws_across_stacks(law):
    cross = {"position": {"name": "dynamic", "norm": True}}
    assert LAWS[law](tiny_config("encoder_decoder", decoder={"cross": cross})) is None


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ({"width": 0}, "position.width: must be at least 1 channel; got 0."),
        ({"hidden": 0}, "position.hidden: must be at least 1 layer; got 0."),
    ],
)
def test_faults_have_the_expected_sentences(node, sentence):
    assert messages(faults(tiny_config(position={"name": "dynamic", **node}))) == [sentence]


@pytest.mark.parametrize("name", ["dynamic", "forgetting"])
def test_it_needs_no_queries(name):
    """Its tables turn nothing, so that the plain mean of all tokens may have it, as it may have
    other biases.
    """
    assert "rotate" not in POSITIONS[name].enters
    assert not faults(tiny_config(attn="mean", position=name))


@pytest.mark.parametrize("position", ["dynamic", "transformer_xl"])
def test_positions_that_are_given_count_as_those_that_are_slots(position):
    """Of slots the number of tokens bounds the distances, and a table serves; of others only the
    device has the bounds.
    """
    case = Composition(tiny_config(position=position), "")
    model, at = case.shared_model, torch.arange(case.ids.shape[1])[None]
    expected = model(case.ids)
    for given in (at, at + 10_000, 7 - at.flip(-1)):  # also of either sign
        torch.testing.assert_close(model(case.ids, position=given), expected, rtol=1e-9, atol=1e-9)
