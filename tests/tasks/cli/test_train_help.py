"""The page of python train.py --help."""

import re
import subprocess
import sys

import pytest

from tasks.cli.train_help import _choices, train_help
from xformer_kit import compose
from xformer_kit.config import GROUPS
from xformer_kit.config.line.composition import choices
from xformer_kit.inspect.components import FIRST, in_order
from xformer_kit.registry import ConfigError


def test_every_group_and_choice_has_its_line():
    page = train_help(width=100)
    for group, names in choices().items():
        assert set(names) <= set(_choices()[group]) | {"default", "prefix_mask"}
    for group, named in _choices().items():
        assert f"\n  {group} " in page
        for name, said in named.items():
            assert f"{name} " in page
            assert said, f"conf/{group}/{name}.yaml needs a first line that describes it"


def test_the_page_has_instructions_flags_and_defaults():
    page = train_help(width=100)
    for word in (
        "resume=RUN",
        "components=[",
        "init_from=RUN",
        "lora.rank=",
        "callbacks.early_stopping.patience=",
        "--cfg job",
        "-m",
        "*multi_head",
        "*rotary",
    ):
        assert word in page
    body = page.split("Instructions")[0]
    assert max(map(len, body.splitlines())) <= 100


def test_defaults_are_those_that_a_run_has():
    """The default experiment changes some of them."""
    config, words = compose([]), train_help(width=100).split("Instructions")[0].split()
    shown = dict(
        word.split("=") for word in words if re.fullmatch(r"(model|data|trainer)\.\w+=\S+", word)
    )
    assert {"model.dim", "data.seq_len", "trainer.max_steps"} <= set(shown)
    for path, value in shown.items():
        node, key = path.split(".")
        if isinstance(config.get(node, {}).get(key), int) and value not in ("true", "false"):
            assert value == str(config[node][key]), path
    marked = [word for word in words if word.startswith("*")]
    assert {"*bpe", "*language_modeling"} <= set(marked)
    assert "*byte" not in marked


@pytest.mark.extended
def test_help_imports_no_lightning():
    script = "import sys; from tasks.cli.train_help import train_help; train_help()\n"
    script += "assert not {'lightning', 'wandb'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_part_of_the_page_has_the_groups_of_its_words():
    page = train_help(["norm", "attn.heads=2", "trainer"], width=100)
    lines = [line.split()[0] for line in page.splitlines() if line[2:3].strip()]
    assert lines[:3] == ["norm", "attn", "trainer"]
    assert all(line.startswith("trainer.") for line in lines[3:-1]) and len(lines) > 10
    assert page.startswith("  norm     *rms ") and "\n  attn     *multi_head " in page
    assert page.endswith("\nTheir options: xformer components norm and xformer components attn\n")
    with pytest.raises(ConfigError, match=r"^--help: no group has this name; got atn\. Did"):
        train_help(["atn"])


def test_lists_begin_with_the_default_and_what_most_models_have():
    config = compose([])
    for group, first in FIRST.items():
        assert in_order(GROUPS[group])[: len(first)] == [*first], group
        assert set(first) <= {*GROUPS[group]} and sorted(in_order(GROUPS[group])) == sorted(
            GROUPS[group]
        )
        assert first[0] == config[group]["name"]
