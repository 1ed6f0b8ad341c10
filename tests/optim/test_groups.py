"""Groups of parameters with their own rate, decay or optimizer, in any optimizer."""

import copy

import pytest
import torch

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import build_tiny_model
from xformer_kit.optim import create_optimizer, rates


def found(node):
    """{name of a parameter: its group} of a small decoder of two layers."""
    model = build_tiny_model(tiny_config(norm="layer"))
    optimizer = create_optimizer(node, model)
    groups = {name: g for g in optimizer.param_groups for name in g["param_names"]}
    assert groups.keys() == dict(model.named_parameters()).keys()
    return groups, optimizer


def test_rate_and_decay_of_a_role_and_of_a_pattern():
    groups = {
        "tables": {"role": "embedding", "lr": 1e-4},
        "late": {"match": "decoder.1.ffn", "lr_factor": 0.5, "weight_decay": 0.3},
    }
    by_name, optimizer = found({"name": "adamw", "lr": 0.01, "groups": groups})
    expected = {
        "embed.weight": (1e-4, 0.1),
        "decoder.1.ffn.down.weight": (0.005, 0.3),
        "decoder.0.ffn.down.weight": (0.01, 0.1),
        "decoder.norm.weight": (0.01, 0.0),
    }
    for name, (lr, decay) in expected.items():
        assert (by_name[name]["lr"], by_name[name]["weight_decay"]) == (lr, decay)
    assert rates(optimizer) == {"lr": 0.01, "lr/tables": 1e-4, "lr/late": 0.005}


def test_layers_have_geometric_rates():
    by_name, _ = found({"name": "adamw", "lr": 1.0, "layer_decay": 0.5})
    shown = {
        name: by_name[name]["lr"]
        for name in (
            "embed.weight",
            "decoder.0.attn.q.weight",
            "decoder.1.attn.q.weight",
            "decoder.norm.weight",
        )
    }
    assert [*shown.values()] == [0.25, 0.5, 1.0, 1.0]


def test_another_optimizer_of_a_group_may_be_a_bare_name():
    groups = {"e": {"role": "embedding", "optim": "sgd"}}
    by_name, optimizer = found({"name": "adamw", "groups": groups})
    assert [type(one).__name__ for one in optimizer.optimizers] == ["AdamW", "SGD"]
    assert by_name["embed.weight"]["momentum"] == 0.9
    words = ["optim.groups.e={role: embedding, optim: sgd}"]
    assert compose(words, data=False)["optim"]["groups"]["e"]["optim"] in ("sgd", {"name": "sgd"})


def test_another_optimizer_for_a_group_steps_and_is_saved():
    node = {
        "name": "sgd",
        "lr": 0.1,
        "groups": {"e": {"role": "embedding", "optim": {"name": "adam", "lr": 0.01}}},
    }
    model, other = build_tiny_model(tiny_config()), build_tiny_model(tiny_config())
    optimizer = create_optimizer(node, model)

    def step(model, optimizer, seed):
        draw = torch.Generator().manual_seed(seed)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=draw)
        optimizer.step()

    before = model.embed.weight.detach().clone()
    step(model, optimizer, 0)
    moved = (model.embed.weight.detach() - before).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.01), rtol=1e-3, atol=0)  # Adam's
    resumed = create_optimizer(node, other)
    other.load_state_dict(model.state_dict())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, of in ((model, optimizer), (other, resumed)):
        step(one, of, 1)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


GROUPS = "optim.groups"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            [f"{GROUPS}.e={{match: decoder.9}}"],
            "optim.groups.e: matches no trained parameter of the model. xformer describe"
            " --parameters lists names and roles.",
        ),
        (
            [f"{GROUPS}={{a: {{role: hidden}}, b: {{match: decoder.0.attn.q.weight}}}}"],
            "optim.groups.b: has decoder.0.attn.q.weight, which groups.a has too. A parameter is"
            " in one group: choose other patterns.",
        ),
        (
            [f"{GROUPS}.e={{role: embedding, match: embed}}"],
            "optim.groups.e: must say which parameters, either by role or by match. Try"
            " role: embedding, or match: decoder.*.attn.",
        ),
        (
            [f"{GROUPS}.e={{role: embeddings}}"],
            "optim.groups.e.role: must be embedding or hidden or head or vector or null; got"
            " 'embeddings'.",
        ),
        (
            [f"{GROUPS}.e={{role: head, rate: 1}}"],
            "optim.groups.e.rate: parameter group 'parameters' has no option 'rate'. It has: role,"
            " match, lr, lr_factor, weight_decay, optim. Leave it out.",
        ),
        (
            [f"{GROUPS}.e={{role: embedding, lr: 1, optim: {{name: sgd}}}}"],
            "optim.groups.e.lr: is that of the group's own optimizer. Set it in {optim: {lr:"
            " ...}}.",
        ),
        (
            ["optim.layer_decay=1.2"],
            "optim.layer_decay: must be above 0 and at most 1; got 1.2. 1 is none.",
        ),
        (
            ["optim=schedule_free", "ema.decay=0.9"],
            "ema.decay: averages the weights, and optim 'schedule_free' averages them too; got 0.9."
            " Leave it out.",
        ),
    ],
)
def test_faults(words, sentence):
    if "schedule_free" in words[0]:
        pytest.importorskip("schedulefree")
    with pytest.raises(ConfigError) as error:
        compose(["data=pydoc", "model.dim=32", "attn.heads=2", *words])
    assert messages(error.value.faults) == [sentence]
