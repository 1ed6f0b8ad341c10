"""The page of python train.py --help."""

import subprocess
import sys

from tasks.help import _choices, train_help
from xformer_kit.config.hydra import choices


def test_every_group_and_choice_has_its_line():
    page = train_help(width=100)
    for group, names in choices().items():
        assert set(names) <= set(_choices()[group]) | {"default"}
    for group, named in _choices().items():
        assert f"\n  {group} " in page
        for name, said in named.items():
            assert f"{name} " in page
            assert said, f"conf/{group}/{name}.yaml needs a first line that says what it is"


def test_the_page_has_instructions_flags_and_defaults():
    page = train_help(width=100)
    for word in (
        "resume=RUN",
        "parts=[",
        "--cfg job",
        "-m",
        "model.dim=256",
        "trainer.max_steps=2000",
        "*multi_head",
        "*rotary",
    ):
        assert word in page
    body = page.split("Instructions")[0]
    assert max(map(len, body.splitlines())) <= 100


def test_help_imports_no_lightning():
    script = "import sys; from tasks.help import train_help; train_help()\n"
    script += "assert not {'lightning', 'wandb'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
