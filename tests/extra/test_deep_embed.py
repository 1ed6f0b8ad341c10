"""Vectors of tokens that networks are multiplied by."""

import pytest
import torch
from torch.testing import assert_close

from tests.laws_kept import every_law_test
from tests.messages import messages
from xformer_kit.extra.deep_embed import TokenFactors
from xformer_kit.ffn import FFNS
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model
from xformer_kit.optim import parameter_groups

DEEP = {"deep_embed": {}}


def vectors(model):
    return model.decoder.extra["deep_embed"].layers["0"].table["ffn"].weight


def test_it_multiplies_as_the_network_of_x_transformers_does():
    theirs = pytest.importorskip("x_transformers.x_transformers").FeedForward(7)
    ours, ids, x = TokenFactors(5, 7), torch.tensor([[4, 0, 4]]), torch.randn(1, 3, 7)
    torch.nn.init.normal_(ours.weight)
    assert_close(ours(theirs(x), ids), theirs(x, deep_embed=ours.weight[ids]))


@torch.no_grad()
def test_each_network_of_each_layer_has_its_own_and_starts_without():
    config = tiny_config(extra=DEEP, decoder={"layout": ["ffn", "attn", "ffn"]})
    case, plain = (
        Composition(config, ""),
        build_tiny_model({**config, "extra": {}}),
    )
    model = build_tiny_model(config)
    names = [name for name, _ in model.named_parameters() if "deep_embed" in name]
    assert names == [
        f"decoder.extra.deep_embed.layers.{layer}.table.{ffn}.weight"
        for layer in (0, 1)
        for ffn in ("ffn", "ffn_2")
    ]
    assert vectors(model).shape == model.embed.weight.shape
    assert torch.equal(case.hidden(model.eval(), case.ids), case.hidden(plain.eval(), case.ids))
    assert set(names) <= set(dict(parameter_groups(model, 0.1)[1]["params"]))


@torch.no_grad()
def test_only_what_a_network_adds_is_multiplied():
    """One feed-forward layer without a norm: x + f(x) becomes x + e f(x)."""
    case = Composition(
        tiny_config(
            extra=DEEP,
            layers=1,
            decoder={"layout": ["ffn"]},
            placement="none",
            position="none",
        ),
        "",
    )
    model = case.model()
    x, e = model.embed.weight[case.ids], vectors(model)[case.ids]
    assert_close(case.hidden(model, case.ids), x + e * model.decoder.blocks[0].ffn(x)[0])


test_vectors_of_tokens_keep_every_law = every_law_test(
    {
        "shared blocks": {
            "extra": {"deep_embed": {}, "token_shift": {}},
            "layers": 3,
            "unique_layers": 2,
            "sharing": "cycle",
            "ffn": "moe",
            "placement": "sandwich",
        },
        "two tables": {
            "extra": DEEP,
            "model": "encoder_decoder",
            "share_embeddings": False,
        },
    }
)


def test_there_must_be_a_network():
    ffn = FFNS.defaults("glu")  # of no width
    (fault,) = messages(faults(tiny_config(extra=DEEP, decoder={"layout": ["attn"]}, ffn=ffn)))
    assert (
        fault
        == "extra.deep_embed: multiplies feed-forward networks, and no layer has one. Leave it out."
    )
