"""What the user sets replaces the default of an option that excludes it, on every way to a run."""

import pytest
import yaml

from xformer_kit.config import compose, preflight
from xformer_kit.config.line.composition import compose_overrides
from xformer_kit.config.line.exclusive_options import OFF, REPLACES
from xformer_kit.config.line.overrides import parse
from xformer_kit.config.line.to_overrides import to_overrides
from xformer_kit.registry import ConfigError
from xformer_kit.text.command_lines import override_text

VALUES = {
    "data.batch_size": 4,
    "data.batch_tokens": 512,
    "data.valid_path": "v.tsv",
    "data.test_path": "t.tsv",
    "data.valid": 0.25,
    "data.test": 0.25,
    "ffn.width": 96,
    "ffn.expand": 3.0,
    "ffn.multiple_of": 8,
    "trainer.max_epochs": 2,
    "trainer.max_steps": 30,
    "trainer.max_tokens": 10**6,
    "ema.decay": 0.9,
    "checkpoints.average": 2,
    "lora.rank": 2,
    "model.freeze": ["embed.*"],
    "model.unfreeze_at": 3,
}
PAIRS = ["task=seq2seq", "data=tsv", "data.path=x.tsv"]
FIRST = ("data.batch_size", "data.valid_path", "data.test_path", "ffn.width", "trainer.max_epochs")
FIRST += ("ema.decay", "lora.rank")
OTHER = [other for path in FIRST for other in REPLACES[path]]
# (options that are set, options that they replace)
OTHERS = [o for o in OTHER if o in REPLACES and o != "trainer.max_tokens"]
TOKENS, LENGTHS = ("trainer.max_tokens",), ("trainer.max_steps", "trainer.max_epochs")
DIRECTIONS = [
    (FIRST, OTHER),
    (OTHERS, (*FIRST[1:], *TOKENS)),
    (TOKENS, LENGTHS),
    (LENGTHS[:1], TOKENS),
]


def composed(words, config_dir=None):
    session, overrides, _ = parse([*PAIRS, *words], config_dir)
    return compose_overrides(session, overrides)[0]


def words(*paths):
    return [f"{path}={override_text(VALUES[path])}" for path in paths]


def value(config, path):
    group, key = path.split(".")
    return config[group][key]


def text(*paths, base=""):
    """The text of a file that sets these paths; base: an experiment that it is based on."""
    nodes = {}
    for path in paths:
        group, key = path.split(".")
        nodes.setdefault(group, {})[key] = VALUES[path]
    return "# @package _global_\n" + yaml.safe_dump({"defaults": [base] if base else []} | nodes)


def test_every_pair_is_tried():
    tried = {(path, other) for paths, others in DIRECTIONS for path in paths for other in others}
    assert tried >= {(path, other) for path in REPLACES for other in REPLACES[path]}


@pytest.mark.extended
@pytest.mark.parametrize(("paths", "others"), DIRECTIONS)
def test_the_line_and_a_file_of_ones_own_replace_a_default(paths, others, tmp_path):
    """The default: of a base of the file, as an experiment of the package sets it."""
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "base.yaml").write_text(text(*others))
    (folder / "own.yaml").write_text(text(*paths, base="/experiment/base"))
    (tmp_path / "mine.yaml").write_text(text(*paths, base="/experiment/base"))
    lines = [
        ["experiment=base", *words(*paths)],
        ["experiment=own"],
        [f"experiment={tmp_path}/mine.yaml"],
    ]
    # A file of --config-dir that the line chooses is the user's own.
    assert value(composed(lines[0], str(tmp_path)), others[0]) == VALUES[others[0]]
    for line in lines[1:]:
        config = composed(line, str(tmp_path))
        assert {path: value(config, path) for path in paths} == {p: VALUES[p] for p in paths}
        assert {path: value(config, path) for path in others} == {p: OFF[p] for p in others}


@pytest.mark.extended
@pytest.mark.parametrize("line", ["experiment=tatoeba data.batch_size=4 ffn.expand=2.0 seed=3"])
def test_the_line_replaces_an_option_of_an_experiment_of_the_package(line):
    config = composed(line.split())
    assert (config["data"]["batch_size"], config["data"]["batch_tokens"]) == (4, None)
    assert (config["ffn"]["width"], config["ffn"]["expand"]) == (None, 2.0)
    assert compose(to_overrides(config), data=False) == config


def test_two_that_the_user_sets_stay_as_they_are(tmp_path):
    """Those that cannot be used together are refused where they are checked."""
    file = tmp_path / "mine.yaml"
    file.write_text(text(*OTHER))
    for line in (words(*FIRST, *OTHER), [f"experiment={file}", *words(*FIRST)]):
        config = composed(line)
        assert all(value(config, path) == VALUES[path] for path in (*FIRST, *OTHER))


def test_null_replaces_nothing():
    config = compose([*PAIRS, "trainer.max_epochs=null", "ffn.width=null"], data=False)
    assert (config["data"]["batch_tokens"], config["trainer"]["max_steps"]) == (2048, 2000)


def test_a_sweep_and_a_factor_replace_a_default(tmp_path):
    (tmp_path / "x.tsv").write_text("a\tb\n" * 40)
    pairs = [*PAIRS[:2], f"data.path={tmp_path}/x.tsv"]
    assert len(preflight(["-m", *pairs, "data.batch_size=4,8"]).configs) == 2
    with pytest.raises(ConfigError, match=r"^data.batch_size: is not read with data.batch_tokens"):
        preflight(["-m", *pairs, "data.batch_size=4,8", "data.batch_tokens=512"])
    (tmp_path / "s.yaml").write_text(
        "study: {question: Which, baseline: {data.batch_size: 4}, factors: {data.batch_size: [8]}}"
    )
    line = preflight([*pairs, f"study={tmp_path}/s.yaml"])
    config, faults = line.compose(["data.batch_size=8"])
    assert (config["data"]["batch_size"], config["data"]["batch_tokens"], faults) == (8, None, [])
