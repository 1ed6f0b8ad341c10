"""The wheel and the editable install contain conf, and compose from it in any directory."""

import os
import re
import subprocess
import sys
import zipfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.requirements_resolve import STORED, conflicts, digest

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


@pytest.mark.extended
def test_the_checkout_composes_from_any_directory(tmp_path):
    assert conf_and_heads(tmp_path, ROOT) == [str(ROOT / "conf"), "4"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A directory with the content of the wheel."""
    tmp_path = tmp_path_factory.mktemp("wheel")
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder
    (wheel,) = builder(str(ROOT)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    return tmp_path / "installed"


@pytest.mark.extended
def test_the_wheel_contains_conf_and_composes_from_it(tmp_path, installed):
    names = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    yaml = {str(path.relative_to(ROOT)) for path in (ROOT / "conf").rglob("*.yaml")}
    assert {f"xformer_kit/{name}" for name in yaml} <= names
    assert {
        "xformer_kit/data/corpus/scan_simple.bin",
        "xformer_kit/study/report/page.html.j2",
        "xformer_kit/study/report/page.md.j2",
    } <= names
    templates = [
        *(ROOT / "tasks" / "cli" / "project").rglob("*.*"),
        *(ROOT / "xformer_kit" / "eject" / "templates").glob("*.jinja"),
    ]
    assert {str(path.relative_to(ROOT)) for path in templates if path.suffix != ".pyc"} <= names
    scripts = {f"tasks/cli/completion.{shell}" for shell in ("bash", "zsh")}
    assert {*scripts, "hydra_plugins/xformer_kit/study_sweeper.py"} <= names
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "xformer_kit",
        "tasks",
        "hydra_plugins",
    }
    assert conf_and_heads(tmp_path, installed) == [str(installed / "xformer_kit" / "conf"), "4"]


@pytest.mark.extended
def test_a_project_trains_with_the_wheel(tmp_path, installed):
    """`xformer new`, then its train.sh, with the package of the wheel."""
    program = tmp_path / "xformer"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m xformer_kit "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {
        "PYTHONPATH": str(installed),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    subprocess.run([program, "new", "mine"], cwd=tmp_path, env=environment, check=True)
    tiny = ["model.dim=32", "trainer.max_steps=4", "schedule.warmup=1", "tokenizer=byte"]
    done = subprocess.run(
        [tmp_path / "mine" / "train.sh", "experiment=first", *tiny, "hydra.run.dir=run"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    assert "name: slopes" in (run / "config.yaml").read_text()
    assert (run / "summary.json").is_file()
    assert "xformer generate" in done.stdout and "python train.py" not in done.stdout


def test_every_target_that_uses_the_environment_waits_for_it():
    """Two targets of one parallel `make` install once: those whose recipe uses the environment or
    calls make have `$(VENV)/ready`, or `compiled`, which needs it, as a prerequisite.
    """
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):(.*)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    users = {
        target: prerequisites
        for target, prerequisites, recipe in targets
        if re.search(r"\$\((BIN|MAKE|PYTEST)\)", recipe)
    }
    assert {"train", "test", "test-all", "lint"} <= users.keys()
    made = [re.search(r"\$\(VENV\)/(ready|compiled)\b", needs) for needs in users.values()]
    assert all(made), users
    assert "\n$(VENV)/compiled: $(VENV)/ready\n" in makefile


def test_the_tested_set_installs_with_the_first_release_of_each_python():
    """A package may need a later one than x.y.0: Debian 12 has Python 3.11.2."""
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    needs = {}
    for pin in pins:
        name, _, version = pin.partition("==")
        with suppress(metadata.PackageNotFoundError):
            if metadata.version(name) == version and (
                rule := metadata.metadata(name).get("Requires-Python")
            ):
                needs[pin] = SpecifierSet(rule)
    assert len(needs) > 100
    for python in ("3.11.0", "3.12.0", "3.13.0"):
        assert [pin for pin, rule in needs.items() if not rule.contains(python)] == []


@pytest.mark.extended
def test_every_extra_and_all_of_them_resolve_with_the_constraints():
    """Resolved when the requirements or the constraints differ from what resolved last."""
    if digest() != STORED.read_text().strip():
        assert conflicts() == {}, "python -m tests.requirements_resolve stores what resolves"
