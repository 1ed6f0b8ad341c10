"""The wheel and the editable install contain conf, and compose from it in any directory."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPOSE = (
    "import xformer_kit.config as c; print(c.conf_dir(), c.compose(['model=decoder',"
    " 'attn.heads=4'])['attn']['heads'])"
)


def conf_and_heads(directory: Path, path: Path) -> list[str]:
    """Returns the conf directory and the composed number of heads of a process in a directory, with
    the package of `path`.
    """
    environment = os.environ | {"PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", COMPOSE],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_checkout_composes_from_any_directory(tmp_path):
    assert conf_and_heads(tmp_path, ROOT) == [str(ROOT / "conf"), "4"]


def test_the_wheel_contains_conf_and_composes_from_it(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder
    (wheel,) = builder(str(ROOT)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    yaml = {str(path.relative_to(ROOT)) for path in (ROOT / "conf").rglob("*.yaml")}
    assert {f"xformer_kit/{name}" for name in yaml} <= names
    assert {
        "xformer_kit/data/corpus/scan_simple.bin",
        "xformer_kit/study/report/page.html.j2",
        "xformer_kit/study/report/page.md.j2",
    } <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
    installed = tmp_path / "installed"
    assert conf_and_heads(tmp_path, installed) == [str(installed / "xformer_kit" / "conf"), "4"]


def test_every_target_that_uses_the_environment_waits_for_it():
    """Two targets of one parallel `make` install once: those whose recipe uses the environment or
    calls make have `$(VENV)/ready` as a prerequisite.
    """
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):(.*)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    users = {
        target: prerequisites
        for target, prerequisites, recipe in targets
        if re.search(r"\$\((BIN|MAKE|PYTEST)\)", recipe)
    }
    assert {"train", "test", "test-all", "lint"} <= users.keys()
    assert [name for name, needs in users.items() if "$(VENV)/ready" not in needs] == []
