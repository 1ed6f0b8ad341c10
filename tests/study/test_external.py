"""Studies of another trainer: the command of a run, its key, and the number that is read."""

import re
from pathlib import Path

import pytest

from xformer_kit.study import study_node
from xformer_kit.study.external import command_of, key_of, read_result

NODE = {
    "command": "python train.py --lr {lr} --seed {seed} --out {dir}",
    "result": "{dir}/log.jsonl:val_loss",
    "factors": {"lr": [0.001, 0.003]},
}
CONFIG = {
    "command": NODE["command"],
    "result": NODE["result"],
    "metric": "val_loss",
    "values": {"lr": "0.001"},
    "seed": 3,
}


def test_placeholders_are_replaced_and_quoted():
    assert (
        command_of(CONFIG, Path("/out/my run"))
        == "python train.py --lr 0.001 --seed 3 --out '/out/my run'"
    )
    dotted = CONFIG | {"command": "run {optim.lr}", "values": {"optim.lr": "1"}}
    assert command_of(dotted, Path()) == "run 1"
    braces = CONFIG | {"command": "echo {{}} {lr}", "values": {"lr": "$(rm -r x)"}}
    assert command_of(braces, Path()) == "echo {} '$(rm -r x)'"


def test_the_first_level_is_the_baseline_and_the_metric_is_the_name_of_the_result():
    node = study_node.complete(NODE, "external")
    assert node["baseline"] == {"lr": 0.001} and node["metric"] == "val_loss"
    assert study_node.faults(NODE) == []
    chosen = study_node.complete(NODE | {"baseline": {"lr": 0.003}, "metric": "loss"}, "")
    assert chosen["baseline"] == {"lr": 0.003} and chosen["metric"] == "loss"


def test_a_key_depends_on_the_command_the_values_the_seed_and_the_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("pass")
    keys = [
        key_of(CONFIG),
        key_of(CONFIG | {"seed": 4}),
        key_of(CONFIG | {"values": {"lr": "0.003"}}),
        key_of(CONFIG | {"result": "{dir}/log.jsonl:loss"}),
        key_of(CONFIG | {"metric": "loss"}),
    ]
    assert key_of(CONFIG) == keys[0]
    Path("train.py").write_text("print()")
    keys.append(key_of(CONFIG))
    assert len(set(keys)) == 6


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("a.json", '{"val/loss": 2, "other": 1}', "val/loss", 2.0),
        ("a.json", '{"eval": {"loss": 1.5}}', "eval.loss", 1.5),
        ("a.jsonl", '{"loss": 3}\n{"loss": 2}\n{"step": 7}\n{"loss": 1', "loss", 2.0),
        ("a.csv", "step,loss\n1,3\n2,2.5\n3,\n", "loss", 2.5),
        ("a.txt", "loss: 3\nloss: 2.25\n", "/loss: (.*)/", 2.25),
    ],
)
def test_the_last_number_is_read(tmp_path, name, text, key, value):
    (tmp_path / name).write_text(text)
    assert read_result(CONFIG | {"result": f"{{dir}}/{name}:{key}"}, tmp_path) == value


def test_a_result_may_name_the_seed(tmp_path):
    (tmp_path / "log_3.json").write_text('{"loss": 2}')
    assert read_result(CONFIG | {"result": "{dir}/log_{seed}.json:loss"}, tmp_path) == 2.0


@pytest.mark.parametrize(
    ("name", "text", "key", "sentence"),
    [
        ("b.json", "{}", "loss", r"it wrote no a.json \(No such file"),
        ("a.json", "{}", "loss", "its a.json has no loss"),
        ("a.json", '{"loss": "low"}', "loss", "loss in its a.json is no number: 'low'"),
    ],
)
def test_a_result_that_is_missing_is_a_sentence(tmp_path, name, text, key, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_result(CONFIG | {"result": f"{{dir}}/a.json:{key}"}, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": "run {lr} {seed} {dir} {wd}"}, "no factor is called 'wd'"),
        ({"command": "run {seed} {dir}"}, r"must have \{lr\}, or its runs are equal"),
        ({"command": "run {lr} {dir}"}, r"must have \{seed\}, or its runs are equal"),
        ({"command": "run {lr} {seed} {"}, "cannot be read: "),
        ({"command": "run {lr} {seed:03d}"}, r"\{seed\} must have no format"),
        ({"command": "run {lr} {seed} '"}, "cannot be read: No closing quotation"),
        ({"result": "{dir}/{x}.json:loss"}, "study.result: no factor is called 'x'"),
        ({"result": None}, r"must be a file in \{dir\} and a name in it"),
        ({"result": "log.json:loss"}, r"must be a file in \{dir\} and a name in it"),
        ({"result": "{dir}/log.txt:loss"}, "other files need a regular expression"),
        ({"result": "{dir}/log.txt:/loss (/"}, "is no regular expression"),
        ({"result": "{dir}/log.txt:/loss/"}, "must have one group"),
        ({"result": "{dir}/log.txt:/loss (.*)/"}, "must name the number"),
        ({"design": {"name": "search", "trials": 4}}, "cannot be used with study.command"),
        ({"budget": {"match": "params"}}, "the costs of a command are not known"),
        ({"command": None}, "must give every factor its level|belongs to a study of another"),
    ],
)
def test_a_study_that_cannot_run_is_a_sentence(changes, message):
    faults = study_node.faults(NODE | changes)
    assert any(re.search(message, str(fault)) for fault in faults), faults
