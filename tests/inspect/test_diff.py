"""Differences of two models, small enough to check by eye, and the output of the command."""

import json

import pytest

from tasks.cli import main
from tasks.cli.diff import split_overrides
from xformer_kit import compose
from xformer_kit.inspect.diff import MISSING, ParameterShapes, diff
from xformer_kit.model.build import build_model

SMALL = [
    "model.dim=8",
    "model.layers=2",
    "attn.heads=2",
    "ffn.width=12",
    "tokenizer=byte",
    "data.seq_len=16",
]


def difference(one: str, other: str):
    return diff(compose([*SMALL, *one.split()]), compose([*SMALL, *other.split()]))


def test_a_model_does_not_differ_from_itself():
    found = difference("position=alibi", "position=alibi")
    assert (found.values, found.kernels, found.tensors) == ([], [], [])
    assert all(one == other for _, one, other in found.costs)
    assert found.shared == found.costs[0].one


def test_fewer_key_heads_have_smaller_keys_and_values_and_half_the_cache():
    found = difference("", "attn.kv_heads=1")
    assert found.values == [("attn.kv_heads", None, 1)]
    assert found.tensors == [
        ParameterShapes("decoder.0-1.attn.k.weight", (8, 8), (4, 8), 2),
        ParameterShapes("decoder.0-1.attn.v.weight", (8, 8), (4, 8), 2),
    ]
    costs = {name: (one, other) for name, one, other in found.costs}
    assert costs["parameters"][0] - costs["parameters"][1] == 2 * 2 * 4 * 8
    assert found.shared == costs["parameters"][0] - 2 * 2 * 8 * 8
    assert costs["memory, cache per token"][0] == 2 * costs["memory, cache per token"][1]


def test_parameters_of_only_one_model():
    found = difference("", "model.layers=3 position=learned")
    assert [name for name, *_ in found.values] == [
        "model.layers",
        "position",
    ]  # whose options are defaults of its name
    added = {tensors.name: tensors.other for tensors in found.tensors}
    assert added["decoder.position.base.weight"] == (16, 8)
    assert added["decoder.2.attn.q.weight"] == (8, 8)
    assert all(tensors.one is None for tensors in found.tensors)
    assert ("decoder.0-1.attn", "sdpa", None) in found.kernels
    assert found.shared == found.costs[0].one


@pytest.mark.extended
@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        (
            "position=rotary position.theta=5000 position.fraction=1.0",
            "position=alibi",
            [("position", "rotary", "alibi"), ("position.theta", 5000, MISSING)],
        ),
        # Components inside a component.
        (
            "position=alibi",
            "position=rotary position.scaling=yarn position.scaling.factor=8",
            [
                ("position", "alibi", "rotary"),
                ("position.scaling", MISSING, "yarn"),
                ("position.scaling.factor", MISSING, 8),
            ],
        ),
        (
            "attn.score.softcap=30",
            "attn.score=sigmoid",
            [("attn.score", "softmax", "sigmoid"), ("attn.score.softcap", 30, MISSING)],
        ),
        # An option of both, which is given in one of them.
        (
            "norm=layer norm.eps=0.1",
            "norm=rms",
            [("norm", "layer", "rms"), ("norm.eps", 0.1, 1e-6)],
        ),
        ("norm=layer norm.eps=0.1", "norm=rms norm.eps=0.1", [("norm", "layer", "rms")]),
        (
            "model.decoder.mask={name:sliding_window,window:7}",
            "",
            [
                ("model.decoder.mask", "sliding_window", MISSING),
                ("model.decoder.mask.window", 7, MISSING),
            ],
        ),
    ],
)
def test_given_options_of_components_with_different_names_are_shown(one, other, values):
    assert difference(one, other).values == values


@pytest.mark.extended
def test_parameters_of_each_layer_in_a_position_are_one_item():
    (curve,) = [
        tensors
        for tensors in difference("", "position=curves").tensors
        if tensors.name.endswith("curve")
    ]
    assert curve == ParameterShapes("decoder.position.layer_0-1.curve", None, (16, 16), 2)


def test_initial_values_of_shared_parameters_are_equal():
    configs = [
        compose([*SMALL, *words]) for words in ((), ("ffn.activation=gelu", "attn.qk_norm=true"))
    ]
    found = diff(*configs)
    one, other = (dict(build_model(config, 256).named_parameters()) for config in configs)
    equal = [name for name, value in one.items() if value.equal(other[name])]
    assert sum(one[name].numel() for name in equal) == found.shared == found.costs[0].one
    assert {tensors.name for tensors in found.tensors} == {
        "decoder.0-1.attn.q_norm.weight",
        "decoder.0-1.attn.k_norm.weight",
    }


@pytest.mark.parametrize(
    ("side", "overrides"),
    [
        ("", []),
        ("attn.heads=4", ["attn.heads=4"]),
        (
            " attn.heads=4  +data.x=a b ~model.encoder=1",
            ["attn.heads=4", "+data.x=a b", "~model.encoder=1"],
        ),
        (
            "model.decoder.layout=[attn, {ffn: {width: 3}}] ffn=mlp",
            ["model.decoder.layout=[attn, {ffn: {width: 3}}]", "ffn=mlp"],
        ),
        ("outputs/decoder/a run", ["outputs/decoder/a run"]),
    ],
)
def test_overrides_of_a_side_are_separated(side, overrides):
    assert split_overrides(side) == overrides


@pytest.mark.extended
def test_the_command_shows_lists_as_they_are_written(capsys):
    assert (
        main(
            [
                "diff",
                "model.dim=32 attn.heads=4",
                "model.dim=32 attn.heads=4 model.decoder.layout=[attn, attn, ffn]",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "model.decoder.layout" in shown and "[attn, attn, ffn]" in shown
    assert "decoder.0-3.attn_2.q.weight  x4" in shown


def test_one_side_differs_from_the_default_model(capsys):
    assert main(["diff", "attn.kv_heads=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sides"] == ["the default model", "attn.kv_heads=2"]
    assert found["values"] == {"attn.kv_heads": [None, 2]}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            [],
            (
                "diff: takes one side or two; got 0. Put the overrides of a side into quotes:"
                " xformer diff"
            ),
        ),
        (["a=1", "b=2", "c=3"], "diff: takes one side or two; got 3."),
        (
            ["attn.hads=3"],
            "attn.hads: attn 'multi_head' has no option 'hads'. Did you mean 'heads'?",
        ),
        (["nowhere", "attn.heads=4"], "A (nowhere): nowhere: is no directory."),
    ],
)
def test_a_fault_of_the_command_is_one_sentence(line, sentence, capsys):
    assert main(["diff", *line]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(sentence) and errors.count("\n") == 1


def test_the_faults_of_both_models_name_their_side(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sides = ["model.laers=3 attn.heads=0", "attn.heds=3"]
    assert main(["diff", *sides]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in errors] == [
        *[f"A ({sides[0]})"] * 2,
        f"B ({sides[1]})",
    ]
    assert [line.split(": ")[1] for line in errors] == ["attn.heads", "model.laers", "attn.heds"]
    assert main(["diff", "tokenizer=char", str(tmp_path / "none")]) == 2
    one, other = capsys.readouterr().err.splitlines()
    assert one.startswith("A (tokenizer=char): model.vocab_size: is not known before")
    assert other == (
        f"B ({tmp_path}/none): {tmp_path}/none: is no directory. There is no run below outputs:"
        " xformer train begins one."
    )
    assert main(["diff", "attn.heds=3"]) == 2
    assert capsys.readouterr().err.startswith("attn.heds: ")  # the only side has no mark
