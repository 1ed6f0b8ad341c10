"""What the README says is so: its table of components, its command lines, its example of a
component.
"""

import re
import shlex
from pathlib import Path

import pytest

from tests.messages import messages
from xformer_kit import build, compose
from xformer_kit.config import GROUPS, preflight
from xformer_kit.inspect.table import refreshed
from xformer_kit.study import question
from xformer_kit.study.plan import variants

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_components_is_that_of_the_registries():
    assert refreshed(README) == README, "run: python -m xformer_kit.inspect.table README.md"


def commands(program: str) -> list[str]:
    lines = re.findall(rf"^    (?:\$ )?{program} (.*)$", README, flags=re.MULTILINE)
    return [line.split("  #")[0].strip() for line in lines]


@pytest.mark.parametrize(
    "line",
    [
        c
        for c in commands("python train.py")
        if not re.search("resume=|components=|heads=7|data=text|data=tsv", c)
    ],
)
def test_the_commands_compose(line):
    words = [word for word in shlex.split(line) if word != "-m"]
    if any(word.startswith("study=") for word in words):
        asked = preflight(words)
        assert messages(question.faults(asked.study)) == []
        variants(question.complete(asked.study, asked.study["name"]), asked.compose)
        return
    compose([word.split(",")[0] if "-m" in line else word for word in words])


def test_the_component_of_ones_own_works(tmp_path):
    source = re.search(r"```python\n# my_components.py\n(.*?)```", README, flags=re.DOTALL).group(1)
    (tmp_path / "my_components.py").write_text(source)
    try:
        config = compose(
            [
                f"components=[{tmp_path / 'my_components.py'}]",
                "attn=mine",
                "attn.knob=3",
                "model.layers=1",
            ]
        )
        assert build(config, vocab_size=5).decoder.blocks[0].attn.knob == 3
    finally:
        GROUPS["attn"].forget(GROUPS["attn"].get("mine").__module__)
