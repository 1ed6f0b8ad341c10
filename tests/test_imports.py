"""Imports have one direction: train.py -> tasks -> xformer_kit, and there from the model to its
components.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.allowed_imports import DIVIDED, HEAVY, KINDS, LAYERS
from tests.found_imports import (
    PLACES,
    ROOT,
    cycle,
    faults,
    library_imports,
    registries,
    tasks_imports,
    unit,
    used_names,
)

HYDRA = ("hydra", "omegaconf")


def test_every_folder_is_in_a_layer():
    """Each folder once; so no two folders import each other, and none in a circle."""
    folders = {
        "/".join(path.relative_to(ROOT / "xformer_kit").parts[:depth])
        for path in ROOT.glob("xformer_kit/**/__init__.py")
        for depth in (1, 2)
        if depth == 1 or path.parts[-3] in DIVIDED
    }
    folders = {folder.removesuffix("/__init__.py").removesuffix(".py") for folder in folders}
    tasks = {f"tasks/{path.parent.name}" for path in ROOT.glob("tasks/*/__init__.py")}
    assert folders | tasks <= PLACES.keys()
    assert sum(map(len, LAYERS)) == len(PLACES)
    assert len(list((ROOT / "tasks").glob("[!_]*"))) <= 14


def test_no_folder_imports_one_of_its_own_layer_or_a_later_one():
    assert faults(library_imports()) == []
    assert faults(tasks_imports()) == []


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


def test_the_kinds_of_a_block_do_not_import_each_other():
    found = {(unit(one.file), unit(one.module)) for one in library_imports()}
    assert {pair for pair in found if set(pair) <= set(KINDS) and pair[0] != pair[1]} == set()


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
    assert imported == {"init_distributions.py imports Registry"}


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


def test_only_config_imports_hydra():
    found = {unit(one.file) for one in library_imports() if one.module.split(".")[0] in HYDRA}
    assert found == {"config/hydra", "config/line"}


def test_hydra_is_used_through_its_public_interface():
    every = [
        one for one in library_imports() + tasks_imports() if one.module.split(".")[0] in HYDRA
    ]
    assert every and [one for one in every if "._" in one.module] == []


def test_only_the_measures_of_parity_import_transformers():
    every = library_imports() + tasks_imports()
    found = {one.file for one in every if one.module.split(".")[0] == "transformers"}
    assert found == {"xformer_kit/parity/library.py"}


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


@pytest.mark.extended
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
