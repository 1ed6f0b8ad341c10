"""The wheel and the editable install contain conf, and compose from it in any directory."""

import os
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
