"""Imports have one direction: train.py -> tasks -> xformer_kit, and there from the model to its
components.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.allowed_imports import HEAVY, KINDS, MAY, TASKS_MAY
from tests.found_imports import (
    ROOT,
    cycle,
    faults,
    library_imports,
    registries,
    task_faults,
    tasks_imports,
    unit,
    used_names,
)


def test_every_file_and_folder_is_in_the_table():
    library = ROOT / "xformer_kit"
    units = {
        path.stem
        for path in library.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    units |= {f"model.{path.stem}" for path in (library / "model").glob("*.py")} - {
        "model.__init__"
    }
    assert units - set(MAY) == set(), "add the new unit to MAY"
    assert len(units - {name for name in units if "." in name}) <= 23


def test_the_library_has_no_forbidden_import():
    assert faults(library_imports()) == []


def test_the_zoo_imports_what_kinds_export_and_no_other_component():
    """Modules of a folder are private to it; helper modules of the zoo start with an underscore."""
    wrong = []
    for one in library_imports():
        if unit(one.file) == "zoo" and one.module.startswith("xformer_kit."):
            _, folder, *rest = one.module.split(".")
            own = folder == "zoo" and len(rest) == 2 and rest[0] == Path(one.file).parent.name
            if not ((own and rest[1].startswith("_")) or (folder != "zoo" and len(rest) == 0)):
                wrong.append(f"{one.file} imports {one.module}")
    assert [line for line in wrong if not line.endswith("xformer_kit.tensors.tokens")] == []


@pytest.mark.parametrize("may", [MAY, TASKS_MAY], ids=["library", "tasks"])
def test_the_tables_have_no_cycle(may):
    order: list[str] = []
    while len(order) < len(may):
        free = [here for here in may if here not in order and not may[here] - set(order)]
        assert free, f"a cycle among {sorted(set(may) - set(order))}"
        order += free


def test_tasks_have_no_forbidden_import():
    assert task_faults(tasks_imports()) == []


def test_every_folder_of_tasks_is_in_the_table():
    folders = {path.parent.name for path in (ROOT / "tasks").glob("*/__init__.py")}
    assert folders <= set(TASKS_MAY)


def test_the_kinds_of_a_block_do_not_import_each_other():
    for kind in KINDS:
        assert not MAY[kind] & set(KINDS)


def test_components_and_model_files_read_no_registry():
    """Components only register themselves; the plan reads the registries."""
    folders = ("attention", "position", "norm", "placement", "ffn", "extra", "zoo", "model")
    files = [path for folder in folders for path in (ROOT / "xformer_kit" / folder).rglob("*.py")]
    found = registries()
    assert {"ATTENTIONS", "SCORES", "QK_NORMS", "EXPERTS", "MASKS", "INITS"} <= found
    assert {
        f"{path.relative_to(ROOT)} reads {name}"
        for path in files
        if path.name != "build.py"
        for name in found & used_names(path.read_text())
    } == set()


def test_the_files_of_a_model_import_no_registry():
    names = registries() | {"Registry"}
    imported = {
        f"{path.name} imports {alias.name}"
        for path in (ROOT / "xformer_kit/model").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if path.name != "build.py" and alias.name in names
    }
    assert imported == {"init.py imports Registry"}


def test_files_have_no_cycle():
    """Also within a unit. Imports of `tasks` at call time count too; for those of the library see
    LATE.
    """
    assert cycle(library_imports(), "xformer_kit", late=False) == set()
    assert cycle(tasks_imports(), "tasks", late=True) == set()


@pytest.mark.parametrize(
    "package", ["tasks", "lightning", "pytorch_lightning", "wandb", "torchmetrics", "train"]
)
def test_the_library_never_imports(package):
    assert [one for one in library_imports() if one.module.split(".")[0] == package] == []


@pytest.mark.parametrize("package", ["hydra", "omegaconf"])
def test_only_config_imports_hydra(package):
    assert {one.file for one in library_imports() if one.module.split(".")[0] == package} <= {
        "xformer_kit/config/line/command_line.py",
        "xformer_kit/config/line/composition.py",
        "xformer_kit/config/line/config_files.py",
        "xformer_kit/config/hydra/environment.py",
        "xformer_kit/config/hydra/glob_choices.py",
        "xformer_kit/config/line/flags.py",
        "xformer_kit/config/hydra/hydra_session.py",
        "xformer_kit/config/line/overrides.py",
        "xformer_kit/config/line/to_overrides.py",
        "xformer_kit/config/line/repeated_keys.py",
        "xformer_kit/config/line/resume_line.py",
        "xformer_kit/config/line/study_line.py",
        "xformer_kit/config/line/task_defaults.py",
    }


def test_hydra_is_used_through_its_public_interface():
    every = [
        one
        for one in library_imports() + tasks_imports()
        if one.module.split(".")[0] in ("hydra", "omegaconf")
    ]
    assert every and [one for one in every if "._" in one.module] == []


def test_tasks_do_not_import_train():
    assert [one for one in tasks_imports() if one.module.split(".")[0] == "train"] == []


def test_heavy_packages_are_imported_at_call_time():
    assert [
        one for one in library_imports() if one.module.split(".")[0] in HEAVY and not one.late
    ] == []


def test_importing_the_package_imports_no_heavy_package():
    """xformer_kit imports no torch; a config error no Lightning, W&B or tokenizer library."""
    code = (
        "import sys, xformer_kit; print('torch' in sys.modules); from xformer_kit.config import"
        " check; import xformer_kit.config.line.command_line; print(sorted({'lightning', 'wandb',"
        " 'tokenizers', 'transformers', 'torchmetrics'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert out.split("\n")[:2] == ["False", "[]"]


def test_signals_are_handled_before_anything_of_size_is_imported():
    """By `xformer`, and by `python -m xformer_kit`, which imports the package first."""
    code = (
        "import sys, xformer_kit, tasks.entry; print({'argparse', 'dataclasses', 'json',"
        " 'xformer_kit.registry', 'tasks.cli'} & set(sys.modules)); xformer_kit.ConfigError"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert out == "set()\n"


def test_launchers_of_runs_import_nothing_that_only_training_needs():
    """Studies, multiruns, joblib's workers and the parent of ranks start runs in other
    processes.
    """
    code = (
        "import sys, tasks.run.start, tasks.logging.sweep_table, tasks.study.sweep;"
        " print(sorted({'lightning', 'wandb', 'tokenizers', 'transformers', 'torchmetrics'}"
        " & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert out == "[]\n"
