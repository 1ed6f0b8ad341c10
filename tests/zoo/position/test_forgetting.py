"""What tokens forget: the sums written out pair by pair, and x-transformers' own modules with the
same weights.
"""

import math

import pytest
import torch

from tests.messages import messages
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition

LENGTH, HEADS = 13, 6


@torch.no_grad()
def layer(node: dict, model: str = "decoder", **fields):
    """The first layer's position, what its attention was given, and what the position added to the
    scores, of the first row.
    """
    case = Composition(tiny_config(model, position={"name": "forgetting", **node}), "")
    built, held = case.model(), {}
    place = built.stack.position["layer_0"]
    read = place.read

    def watched(x, context, cache):
        held.update(x=x, made=read(x, context, cache))
        return held["made"]

    place.read = watched
    case.hidden(built, case.ids[:1], **fields)
    return place, held["x"], held["made"][0]


@pytest.mark.parametrize(
    ("node", "model"),
    [({}, "decoder"), ({}, "encoder"), ({"gates": "pair", "gate_dim": 3}, "decoder")],
)
@torch.no_grad()
def test_what_is_forgotten_is_that_of_x_transformers(node, model):
    theirs = pytest.importorskip("x_transformers.x_transformers")
    place, x, added = layer(node, model)
    if node:
        made = theirs.PerRowDataDependentAlibi(x.shape[-1], HEADS, dim_head=3).double()
    else:
        made = theirs.DataDependentAlibi(x.shape[-1], HEADS, causal=model == "decoder").double()
        made.to_forget_gates[0].bias.copy_(place.offset)
    made.to_forget_gates[0].weight.copy_(place.weight)
    expected = made(x)[0]
    if model == "decoder":  # theirs continues after the query, which a causal mask hides
        added, expected = added.tril(), expected.tril()
    torch.testing.assert_close(added, expected)
    assert added.amin() < -0.1


@torch.no_grad()
def test_gates_of_later_tokens_and_of_pairs_are_summed_between_the_two():
    real = torch.arange(LENGTH)[None] < 11
    place, x, added = layer({"gates": "pair", "gate_dim": 3}, "encoder", real=real)
    asks, keys = (x[0] @ place.weight.T).unflatten(-1, (2, 2, HEADS, 3)).unbind(1)
    logs = torch.nn.functional.logsigmoid(
        torch.einsum("iwhd,jwhd->whij", asks, keys) / math.sqrt(3)
    )
    for i in range(11):
        for j in range(11):
            between = logs[0, :, i, j:i] if j <= i else logs[1, :, i, i + 1 : j + 1]
            torch.testing.assert_close(added[:, i, j], between.sum(-1))


def test_gates_start_nearly_open():
    from xformer_kit.model.build import build_model

    place = build_model(tiny_config(position="forgetting"), 37).decoder.position["layer_1"]
    assert (place.offset == 5).all()
    shared = build_model(
        tiny_config(position={"name": "forgetting", "per_layer": False, "start": 2.0}), 37
    ).decoder.position
    assert list(shared) == ["base"]
    assert (shared["base"].offset == 2).all()


@pytest.mark.parametrize(
    "law", ["cache with padding", "documents", "causality", "select and rewind"]
)
@pytest.mark.parametrize(
    "attn", ["mean", {"name": "latent", "rope_head_dim": 0}, "differential"], ids=str
)
def test_a_bias_of_what_tokens_hold_needs_no_channels(attn, law):
    node = {"name": "forgetting", "gates": "pair" if attn == "mean" else "token", "gate_dim": 3}
    assert LAWS[law](tiny_config(attn=attn, position=node)) is None


def test_what_cannot_forget_is_refused():
    assert messages(
        faults(tiny_config(position={"name": "forgetting", "gates": "pair", "gate_dim": 0}))
    ) == ["position.gate_dim: must be at least 1 channel; got 0."]
    assert messages(faults(tiny_config(position={"name": "forgetting", "start": 3.0}))) == []
    assert messages(
        faults(tiny_config(position={"name": "forgetting", "gates": "pair", "start": 3.0}))
    ) == [
        "position.start: belongs to gates=token; got 3.0. Leave it out, or try"
        " position.gates=token."
    ]
    (sentence,) = messages(
        faults(tiny_config("encoder_decoder", decoder={"cross": {"position": "forgetting"}}))
    )
    assert "in cross attention there are none" in sentence
    (sentence,) = messages(faults(tiny_config(position="forgetting", kernel="sdpa")))
    assert sentence.startswith(
        "kernel: 'sdpa' cannot: position 'forgetting' computes scores of its own"
    )


@pytest.mark.parametrize("gates", ["token", "pair"])
@torch.no_grad()
def test_padding_between_a_prompt_and_what_follows_forgets_nothing(gates):
    case = Composition(tiny_config(position={"name": "forgetting", "gates": gates}), "")
    model, ids = case.model(), case.ids[:1]
    real = torch.tensor([[True] * 5 + [False] * 4 + [True] * 4])
    torch.testing.assert_close(
        case.logits(model, ids, real=real)[:, real[0]], case.logits(model, ids[:, real[0]])
    )
