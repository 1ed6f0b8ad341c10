"""Forbidden imports are found."""

import pytest

from tests.found_imports import cycle, faults, imports, task_faults, tasks_imports


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
            "xformer_kit/tensors/tokens.py",
            "from xformer_kit import load",
            "model.tokens imports __init__",
        ),
        (
            "tasks/callbacks/stopping.py",
            "from tasks.run import training_process",
            "callbacks imports run",
        ),
        (
            "tasks/modules/module.py",
            "from tasks.callbacks import Recorder",
            "modules imports callbacks",
        ),
        ("tasks/run/start.py", "from tasks import cli", "run imports cli"),
        (
            "tasks/process/seeds.py",
            "from tasks.run.start import start_run",
            "run.seeds imports run",
        ),
        (
            "tasks/callbacks/pruning.py",
            "from tasks.study import storage",
            "callbacks imports study",
        ),
    ],
)
def test_a_forbidden_import_is_found(file, line, fault):
    rule = task_faults if file.startswith("tasks/") else faults
    assert rule(list(imports(line, file))) == [fault]


def test_files_that_import_each_other_are_found():
    back = list(imports("def f():\n    from tasks.run import start", "tasks/process/processes.py"))
    assert cycle(tasks_imports() + back, "tasks", late=True) >= {
        "tasks/process/processes.py",
        "tasks/run/start.py",
    }
    assert cycle(tasks_imports() + back, "tasks", late=False) == set()


def test_imports_at_call_time_and_for_types_are_allowed():
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
