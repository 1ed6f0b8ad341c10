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
    "model.initialise": {"model.init"},
    "model.report": set(),
    "model.cache": {"registry"},
    "model.loss": set(),
    "model.fused_projections": set(),
    "kernel": GROUND,
    **dict.fromkeys(KINDS, GROUND),
    "attention": GROUND | {"kernel", "model.fused_projections", "model.cache"},
    "extra": GROUND | {"model.cache", "model.initialise"},
    "ffn": GROUND | {"model.fused_projections"},
    "plan": {*KINDS, "extra", "kernel", "registry"},
    "model.generation_cache": GROUND | {"model.cache"},
    "model.block": GROUND | {"attention", "extra", "placement", "model.cache", "model.report"},
    "model.stack_cache": GROUND | {"model.block", "model.cache", "model.generation_cache"},
    "model.stack": GROUND
    | {"extra", "kernel", "placement", "position"}
    | {"model.block", "model.generation_cache", "model.report", "model.stack_cache"},
    "zoo": GROUND | {*KINDS, "kernel", "model.cache"},  # imported by the registry on demand only
    "model.compiling": {"model.stack"},
    "model.head": {"model.loss", "model.fused_projections"},
    "model.model": GROUND
    | {"model.generation_cache", "model.head", "model.report", "model.stack", "model.stack_cache"},
    "model.build": GROUND
    | {*KINDS, "extra", "kernel", "plan"}
    | {"model.block", "model.head", "model.init", "model.initialise", "model.model", "model.stack"},
    "model.sharding": {"model.model", "model.stack"},
    "objective": GROUND | {"model.model"},
    "generate": GROUND | {"model.model", "model.generation_cache", "model.fused_projections"},
    "data": GROUND,
    "optim": {"registry"},
    "config": {*KINDS, "extra", "kernel", "plan", "model.init", "model.build"}
    | {"objective", "data", "optim", "registry"},
    "model.checkpoint": {"config", "registry"},
    "model.api": {"config", "data", "objective", "registry"}
    | {"model.build", "model.checkpoint", "model.model"},
    "inspect": GROUND
    | {*KINDS, "extra", "kernel", "plan", "objective", "data", "optim", "config"}
    | {"model.block", "model.build", "model.head", "model.loss", "model.model", "model.stack"},
    "study": {"registry", "config", "inspect"},
    "laws": GROUND
    | {*KINDS, "extra", "kernel", "plan", "config"}
    | {"model.block", "model.build", "model.generation_cache", "model.initialise", "model.model"}
    | {"model.compiling", "model.stack"},
    "model": set(),
    "__init__": {"registry"},
}
# Upward imports, at call time only.
LATE = {("model.model", "generate"), ("__init__", "config"), ("__init__", "model.api")}
# Which room of tasks may import which. A folder is a room; so are the files of run/ that need
# nothing else of a run, and "modules", the files at the top: the Lightning modules and the data.
OF_RUN = {f"run.{name}" for name in ("exit_codes", "seeds", "auto_accumulate", "to_overrides")}
TASKS_MAY: dict[str, set[str]] = {
    "run.exit_codes": set(),
    "run.seeds": set(),
    "run.auto_accumulate": set(),
    "run.to_overrides": set(),
    "run.processes": {"run.exit_codes"},
    "run.checkpoints": {"run.exit_codes", "logging"},
    "generation": set(),
    "logging": {"run.exit_codes", "modules"},
    "modules": {"generation", "run.processes", *OF_RUN},
    "callbacks": {
        "modules",
        "generation",
        "logging",
        "run.checkpoints",
        "run.processes",
        "run.exit_codes",
    },
    "run": {
        "modules",
        "logging",
        "callbacks",
        "run.checkpoints",
        "run.processes",
        *OF_RUN,
    },
    "study": {"modules", "logging", *OF_RUN},
    "hydra_app": {"study", "logging", "run", "run.processes"},
    "cli": {"modules", "generation", "logging", "study", "run", "run.processes", *OF_RUN},
}
# At call time only: a trial of a search reports to the storage of its study.
TASKS_LATE = {("callbacks", "study")}
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
                packages = child.module == "xformer_kit" or (
                    child.module.split(".")[0] == "tasks"
                    and (ROOT / child.module.replace(".", "/")).is_dir()
                )
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


def tasks_room(name: str) -> str:
    """tasks/run/seeds.py -> run.seeds; tasks.run.trainer -> run; tasks/data.py -> modules."""
    parts = name.removesuffix(".py").replace("/", ".").split(".")[1:]
    if (in_run := ".".join(parts[:2])) in TASKS_MAY:
        return in_run
    return parts[0] if parts and parts[0] in TASKS_MAY else "modules"


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


def task_faults(found: list[Import]) -> list[str]:
    """Every import between rooms of tasks that runs the wrong way."""
    wrong = set()
    for one in found:
        here, there = tasks_room(one.file), tasks_room(one.module)
        allowed = {here, *TASKS_MAY[here]}
        late = one.late and (here, there) in TASKS_LATE
        if one.module.split(".")[0] == "tasks" and there not in allowed and not late:
            wrong.add(f"{here} imports {there}")
    return sorted(wrong)


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
    assert len(rooms - {name for name in rooms if "." in name}) <= 23


def test_the_library_imports_one_way():
    assert faults(LIBRARY) == []


def test_the_zoo_imports_what_kinds_export_and_no_other_component():
    """A module of a folder is private to it; a helper of the zoo has a leading underscore."""
    wrong = []
    for one in LIBRARY:
        if room(one.file) == "zoo" and one.module.startswith("xformer_kit."):
            _, place, *rest = one.module.split(".")
            own = place == "zoo" and len(rest) == 2 and rest[0] == Path(one.file).parent.name
            if not ((own and rest[1].startswith("_")) or (place != "zoo" and len(rest) == 0)):
                wrong.append(f"{one.file} imports {one.module}")
    assert [line for line in wrong if not line.endswith("xformer_kit.model.tokens")] == []


@pytest.mark.parametrize("may", [MAY, TASKS_MAY], ids=["library", "tasks"])
def test_the_plan_has_no_cycle(may):
    order: list[str] = []
    while len(order) < len(may):
        free = [here for here in may if here not in order and not may[here] - set(order)]
        assert free, f"a cycle among {sorted(set(may) - set(order))}"
        order += free


def test_tasks_import_one_way():
    assert task_faults(TASKS) == []


def test_every_folder_of_tasks_is_on_the_plan():
    folders = {path.parent.name for path in (ROOT / "tasks").glob("*/__init__.py")}
    assert folders <= set(TASKS_MAY)


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
        "import sys, tasks.run.start, tasks.logging.sweep_table, tasks.study.sweep;"
        " print(sorted({'lightning', 'wandb', 'tokenizers', 'transformers', 'torchmetrics'}"
        " & set(sys.modules)))"
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
            "xformer_kit/attention/base.py",
            "def f():\n    from xformer_kit.zoo.attn import performer",
            "attention imports zoo",
        ),
        (
            "xformer_kit/zoo/attn/performer.py",
            "from xformer_kit.model.init import INITS",
            "zoo imports model.init",
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


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        (
            "tasks/callbacks/guard.py",
            "from tasks.run import training_process",
            "callbacks imports run",
        ),
        ("tasks/module.py", "from tasks.callbacks import Recorder", "modules imports callbacks"),
        ("tasks/run/start.py", "from tasks import cli", "run imports cli"),
        ("tasks/run/seeds.py", "from tasks.run.start import start_run", "run.seeds imports run"),
        (
            "tasks/callbacks/pruning.py",
            "from tasks.study import storage",
            "callbacks imports study",
        ),
    ],
)
def test_an_import_of_tasks_that_runs_the_wrong_way_is_found(file, line, fault):
    assert task_faults(list(imports(line, file))) == [fault]


def test_files_that_need_each_other_are_found():
    back = list(imports("def f():\n    from tasks.run import start", "tasks/run/processes.py"))
    assert cycle(TASKS + back, "tasks", late=True) >= {
        "tasks/run/processes.py",
        "tasks/run/start.py",
    }
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
