"""Imports run one way: train.py -> tasks -> xformer_kit, and inside it from the model down to its
parts.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("attention", "mask", "position", "norm", "placement", "ffn")
GROUND = {"registry", "model.tokens"}

# Which room of xformer_kit may import which, when it is imported itself. A folder is a room, and so
# is each file of model/.
MAY: dict[str, set[str]] = {
    "registry": set(),
    "model.tokens": {"registry"},
    "model.init": {"registry"},
    "model.loss": set(),
    "model.fused_projections": set(),
    "kernel": GROUND,
    **dict.fromkeys(KINDS, GROUND),
    "placement": GROUND | {"model.init"},
    "attention": GROUND | {"kernel", "model.fused_projections"},
    "ffn": GROUND | {"model.fused_projections"},
    "plan": {*KINDS, "kernel", "registry"},
    "model.block": {*KINDS, "model.tokens"},
    "model.cache": {"attention", *GROUND},
    "model.stack": {*KINDS, "kernel", "model.block", "model.cache", "plan", *GROUND},
    "model.compiling": {"model.stack"},
    "model.head": {"model.loss", "model.fused_projections"},
    "model.model": {
        "model.stack",
        "model.cache",
        "plan",
        "model.init",
        "model.head",
        "norm",
        *GROUND,
    },
    "model.sharding": {"model.model", "model.stack"},
    "objective": GROUND | {"model.model"},
    "generate": GROUND | {"model.model", "model.cache", "model.fused_projections"},
    "data": GROUND,
    "optim": {"registry"},
    "config": {
        *KINDS,
        "kernel",
        "plan",
        "model.init",
        "model.model",
        "objective",
        "data",
        "optim",
        "registry",
    },
    "model.checkpoint": {"config", "registry"},
    "model.api": {"model.checkpoint", "config", "data", "model.model", "objective", "registry"},
    "inspect": {
        *KINDS,
        "model.head",
        "kernel",
        "model.loss",
        "plan",
        "objective",
        "data",
        "optim",
        "config",
        "model.model",
        "model.stack",
        *GROUND,
    },
    "study": {"registry", "config", "inspect"},
    "laws": {
        "model.block",
        "config",
        "model.init",
        "kernel",
        "model.model",
        "model.cache",
        "plan",
        "model.stack",
        *KINDS,
        *GROUND,
    },
    "model": set(),
    "__init__": {"registry"},
}
# Upward imports, at call time only.
LATE = {("model.model", "generate"), ("__init__", "config"), ("__init__", "model.api")}
# Imported where they are used.
HEAVY = {
    "optuna",
    "tokenizers",
    "rich",
    "pandas",
    "transformers",
    "matplotlib",
    "scipy",
    "statsmodels",
}


class Import(NamedTuple):
    """One import statement: `late` inside a function."""

    file: str
    module: str  # "torch.nn", "xformer_kit.plan"
    late: bool


def imports(source: str, file: str) -> Iterator[Import]:
    def walk(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from (Import(file, alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{file}: a relative import hides where it goes"
                packages = child.module in ("xformer_kit", "tasks")
                names = (
                    [f"{child.module}.{alias.name}" for alias in child.names]
                    if packages
                    else [str(child.module)]
                )
                yield from (Import(file, name, late) for name in names)
            yield from walk(
                child,
                late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda),
            )

    return walk(ast.parse(source), False)


def of(pattern: str) -> list[Import]:
    files = sorted(ROOT.glob(pattern))
    assert files
    return [
        found for file in files for found in imports(file.read_text(), str(file.relative_to(ROOT)))
    ]


def room(name: str) -> str:
    """xformer_kit/attention/base.py or xformer_kit.attention.base -> attention;
    xformer_kit/model/head.py -> model.head; a name of the package -> __init__.
    """
    parts = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__").split(".")
    if (of_model := ".".join(parts[1:3])) in MAY and parts[1] == "model":
        return of_model
    return parts[1] if len(parts) > 1 and parts[1] in MAY else "__init__"


LIBRARY = of("xformer_kit/**/*.py")
TASKS = of("tasks/**/*.py")


def between_rooms(found: list[Import]) -> Iterator[tuple[str, str, bool]]:
    for one in found:
        if one.module.split(".")[0] == "xformer_kit" and room(one.file) != room(one.module):
            yield room(one.file), room(one.module), one.late


def faults(found: list[Import]) -> list[str]:
    """Every import that runs the wrong way."""
    wrong = []
    for here, there, late in between_rooms(found):
        if there not in MAY[here] and not (late and (here, there) in LATE):
            wrong.append(f"{here} imports {there}")
    return sorted(set(wrong))


def test_every_room_is_on_the_plan():
    library = ROOT / "xformer_kit"
    rooms = {
        path.stem
        for path in library.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    rooms |= {f"model.{path.stem}" for path in (library / "model").glob("*.py")} - {
        "model.__init__"
    }
    assert rooms - set(MAY) == set(), "write the new room into MAY"
    assert len(rooms - {name for name in rooms if "." in name}) <= 22


def test_the_library_imports_one_way():
    assert faults(LIBRARY) == []


def test_the_plan_has_no_cycle():
    order: list[str] = []
    while len(order) < len(MAY):
        free = [here for here in MAY if here not in order and not MAY[here] - set(order)]
        assert free, f"a cycle among {sorted(set(MAY) - set(order))}"
        order += free


def test_the_kinds_of_a_block_never_import_each_other():
    for kind in KINDS:
        assert not MAY[kind] & set(KINDS)


def cycle(found: list[Import], package: str, late: bool) -> set[str]:
    """Files of a package that need each other, and those that need them. `late`: with imports at
    call time.

    An __init__ is left out: it gathers what its folder holds.
    """
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob(f"{package}/**/*.py")} | {
        one.file for one in found
    }
    graph: dict[str, set[str]] = {file: set() for file in files}
    for one in found:
        path = one.module.replace(".", "/")
        target = next(
            (f"{p}.py" for p in (path, path.rpartition("/")[0]) if f"{p}.py" in files), None
        )
        if target and (late or not one.late):
            graph[one.file].add(target)
    while leaves := {file for file, needs in graph.items() if not needs & set(graph) - {file}}:
        graph = {file: needs for file, needs in graph.items() if file not in leaves}
    return set(graph)


def test_files_have_no_cycle():
    """Also within a room: file by file. What `tasks` imports at call time counts too; the
    library's, see LATE.
    """
    assert cycle(LIBRARY, "xformer_kit", late=False) == set()
    assert cycle(TASKS, "tasks", late=True) == set()


@pytest.mark.parametrize(
    "package", ["tasks", "lightning", "pytorch_lightning", "wandb", "torchmetrics", "train"]
)
def test_the_library_never_imports(package):
    assert [one for one in LIBRARY if one.module.split(".")[0] == package] == []


@pytest.mark.parametrize("package", ["hydra", "omegaconf"])
def test_only_config_knows_hydra(package):
    assert {one.file for one in LIBRARY if one.module.split(".")[0] == package} <= {
        "xformer_kit/config/command_line.py",
        "xformer_kit/config/composition.py",
        "xformer_kit/config/flags.py",
        "xformer_kit/config/hydra_session.py",
        "xformer_kit/config/overrides.py",
        "xformer_kit/config/study_line.py",
    }


def test_hydra_is_used_through_its_public_interface():
    every = [one for one in LIBRARY + TASKS if one.module.split(".")[0] in ("hydra", "omegaconf")]
    assert every and [one for one in every if "._" in one.module] == []


def test_tasks_do_not_import_train():
    assert [one for one in TASKS if one.module.split(".")[0] == "train"] == []


def test_heavy_packages_are_imported_where_they_are_used():
    assert [one for one in LIBRARY if one.module.split(".")[0] in HEAVY and not one.late] == []


def test_the_package_is_light():
    """`import xformer_kit` brings no torch; a config error brings no Lightning, no W&B and no
    tokenizer library.
    """
    code = (
        "import sys, xformer_kit; print('torch' in sys.modules); from xformer_kit.config import"
        " check; import xformer_kit.config.command_line; print(sorted({'lightning', 'wandb',"
        " 'tokenizers', 'transformers', 'torchmetrics'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert out.split("\n")[:2] == ["False", "[]"]


def test_who_launches_runs_imports_nothing_that_only_trains():
    """Studies, multiruns, joblib's workers and the parent of ranks start runs in other
    processes.
    """
    code = (
        "import sys, tasks.run, tasks.sweep, tasks.study.sweep; print(sorted({'lightning', 'wandb',"
        " 'tokenizers', 'transformers', 'torchmetrics'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert out == "[]\n"


# Seen to bite.


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("xformer_kit/norm/norms.py", "from xformer_kit.ffn import FFNS", "norm imports ffn"),
        (
            "xformer_kit/mask/base.py",
            "def f():\n    from xformer_kit import model",
            "mask imports model",
        ),
        (
            "xformer_kit/model/model.py",
            "from xformer_kit.generate import generate",
            "model.model imports generate",
        ),
        (
            "xformer_kit/position/base.py",
            "import xformer_kit.model.stack",
            "position imports model.stack",
        ),
        (
            "xformer_kit/kernel/sdpa.py",
            "if True:\n    from xformer_kit.attention import base",
            "kernel imports attention",
        ),
        (
            "xformer_kit/model/tokens.py",
            "from xformer_kit import load",
            "model.tokens imports __init__",
        ),
    ],
)
def test_an_import_that_runs_the_wrong_way_is_found(file, line, fault):
    assert faults(list(imports(line, file))) == [fault]


def test_files_that_need_each_other_are_found():
    back = list(imports("def f():\n    from tasks import run", "tasks/workers.py"))
    assert cycle(TASKS + back, "tasks", late=True) >= {"tasks/workers.py", "tasks/run.py"}
    assert cycle(TASKS + back, "tasks", late=False) == set()


def test_an_import_at_call_time_and_one_for_types_are_free():
    source = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from xformer_kit.generate"
        " import x\n"
    )
    assert faults(list(imports(source, "xformer_kit/model/model.py"))) == []
    assert (
        faults(
            list(
                imports(
                    "def f():\n    from xformer_kit.generate import x", "xformer_kit/model/model.py"
                )
            )
        )
        == []
    )
