"""Every experiment composes, and those of a probe train a step and are judged on its fixed test
set.
"""

import json

import pytest

from tasks.run.start import start_run
from xformer_kit import ConfigError
from xformer_kit.config.line.composition import choices, compose
from xformer_kit.data.corpus import CORPORA

SMALL = [
    "model.dim=16",
    "attn.heads=2",
    "data.batch_size=4",
    "data.examples=8",
    "trainer.max_steps=1",
    "trainer.val_every=1",
    "trainer.checkpoint_every=1",
    "trainer.accelerator=cpu",
    "logger=none",
]
OWN = {"seq2seq_pairs": ["data=tsv"]}  # what its comment says that one adds
PROBES = [
    name for name in choices()["experiment"] if name in CORPORA and CORPORA[name].form == "labelled"
]


@pytest.fixture
def files(tmp_path):
    """What experiments of files of one's own read."""
    (tmp_path / "pairs.tsv").write_text("a b\tb a\n" * 8)
    (tmp_path / "input.txt").write_text("to be or not to be\n" * 80)
    for split in ("train", "dev", "test", "gen"):
        (tmp_path / f"{split}.tsv").write_text("A cat ran .\tcat ( x _ 1 )\tin_distribution\n")
    pairs = tmp_path / "pairs.tsv"
    return {
        "cogs": tmp_path,
        "nanogpt_cpu": tmp_path / "input.txt",
        "seq2seq_pairs": pairs,
        "tatoeba": pairs,
    }


@pytest.mark.parametrize("name", choices()["experiment"])
def test_an_experiment_composes(name, files):
    path = [f"data.path={files[name]}"] if name in files else []
    assert compose([f"experiment={name}", *OWN.get(name, []), *path])["trainer"]["max_steps"] > 0


def test_the_probes_that_are_reported_are_here():
    assert {"recall", "copy", "induction"} <= set(PROBES)


@pytest.mark.parametrize("name", PROBES)
def test_an_experiment_of_a_probe_is_judged_on_its_test_set(name, tmp_path):
    config = compose([f"experiment={name}", *SMALL])
    assert config["data"]["name"] == config["name"] == name
    assert start_run(config, tmp_path / name) == 0
    summary = json.loads((tmp_path / name / "summary.json").read_text())
    assert 0 <= summary["test/accuracy"] <= 1
    assert summary["task"] == "language_modeling"


def test_a_component_on_the_command_line_replaces_that_of_an_experiment_with_its_options():
    config = compose(["experiment=induction", "attn=dot"])
    assert config["attn"] == {"name": "dot", "scale": None, "dropout": 0.0}
    with pytest.raises(ConfigError, match=r"^attn\.heads: attn 'dot' has no option 'heads'"):
        compose(["experiment=induction", "attn=dot", "attn.heads=4"])


GLOBAL = "# @package _global_\n"


@pytest.mark.extended
@pytest.mark.parametrize(
    "line",
    [
        [],
        ["task=seq2seq"],
        ["task=seq2seq", "model=encoder_decoder", "data=dates"],
        ["task=masked_language_modeling"],
    ],
)
def test_an_experiment_differs_from_the_run_without_it_in_its_own_lines(line, tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        f"{GLOBAL}defaults: [override /norm: layer]\nmodel: {{dropout: 0.5}}\noptim: {{lr: 0.5}}\n"
        "trainer: {max_steps: 7}\nseed: 3\n"
    )
    without = compose(line, config_dir=str(tmp_path))
    config = compose([*line, "experiment=mine"], config_dir=str(tmp_path))
    changed = {"model.dropout", "optim.lr", "trainer.max_steps", "norm", "seed"}
    assert set(_differences(without, config)) == changed


def test_an_experiment_decides_over_what_its_task_brings(tmp_path):
    """The mask that a decoder needs for seq2seq is not that of an encoder-decoder."""
    (tmp_path / "experiment").mkdir()
    for name, entry in {"two": "model: encoder_decoder", "mask": "mask: sliding_window"}.items():
        lines = f"{GLOBAL}defaults: [override /{entry}]\n"
        (tmp_path / "experiment" / f"{name}.yaml").write_text(lines)
    masks = {
        name: compose(["task=seq2seq", f"experiment={name}"], config_dir=str(tmp_path))["mask"]
        for name in ("two", "mask", "null")
    }
    assert {name: mask["name"] for name, mask in masks.items()} == {
        "two": "causal",
        "mask": "sliding_window",
        "null": "prefix",
    }


def _differences(one, other, prefix=""):
    """Yields the paths at which two configs differ; a component that is another as a whole."""
    for key in one.keys() | other.keys():
        a, b = one.get(key), other.get(key)
        if (
            a != b
            and isinstance(a, dict)
            and isinstance(b, dict)
            and a.get("name") == b.get("name")
        ):
            yield from _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key}"


@pytest.mark.extended
@pytest.mark.parametrize(
    ("line_of_file", "chosen"),
    [
        ("position: rope", "position=alibi"),
        ("position: {name: rope, theta: 500.0}", "position=alibi position.exponent=4.0"),
        ("ffn: {name: mlp}", "ffn=glu"),
        ("attn: {name: gqa, kv_heads: 2}", "attn=linear"),
        ("attn: {name: gqa, kv_heads: 2}", "attn=mqa attn.heads=4"),
        ("norm: {name: layer}", "norm=rms"),
        ("schedule: wsd", "schedule=linear"),
        ("tokenizer: byte", "tokenizer=char"),
        ("data: {name: copy}", "data=pydoc"),
        ("logger: none", "logger=tensorboard"),
        ("logger: none", "logger=[csv,tensorboard]"),
        ("logger: {wandb: {project: x}}", "logger=csv"),
        ("position: rope", "position=alibi name=run_${seed}"),  # which Hydra composes as a whole
    ],
)
def test_a_component_of_the_command_line_replaces_one_that_a_file_names(
    line_of_file, chosen, tmp_path
):
    """Hydra merges the values of a file over the choices of the command line."""
    file = tmp_path / "mine.yaml"
    file.write_text(f"{line_of_file}\n")
    words = chosen.split()
    assert compose([f"experiment={file}", *words]) == compose(words)


def test_options_of_a_file_hold_for_the_component_that_it_names(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("position: {name: rope, theta: 500.0}\nattn: {name: gqa, kv_heads: 2}\n")
    for words in ([], ["position=rope", "attn=gqa"], ["position=rotary"]):
        config = compose([f"experiment={file}", *words])
        assert config["position"]["theta"] == 500.0 and config["attn"]["kv_heads"] == 2


@pytest.mark.extended
def test_a_file_of_ones_own_that_the_command_line_chooses_replaces_it_too(tmp_path):
    (tmp_path / "position").mkdir()
    (tmp_path / "position" / "mine.yaml").write_text("name: alibi\nexponent: 4.0\n")
    file = tmp_path / "mine.yaml"
    file.write_text("position: rope\n")
    words, own = [f"experiment={file}", "position=mine"], str(tmp_path)
    assert compose(words, own) == compose(words[1:], own)
    assert compose(words, own)["position"]["exponent"] == 4.0
