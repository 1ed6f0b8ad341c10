"""Forbidden imports are found."""

import pytest

from tests.found_imports import cycle, faults, imports, tasks_imports


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
            "xformer_kit/position/base.py",
            "import xformer_kit.model.stack",
            "position imports model",
        ),
        (
            "xformer_kit/attention/base.py",
            "def f():\n    from xformer_kit.zoo.attn import a",
            "attention imports zoo",
        ),
        (
            "xformer_kit/zoo/attn/performer.py",
            "from xformer_kit.model.init_distributions import INITS",
            "zoo imports model",
        ),
        (
            "xformer_kit/kernel/sdpa.py",
            "if True:\n    from xformer_kit.attention import base",
            "kernel imports attention",
        ),
        (
            "xformer_kit/tensors/tokens.py",
            "from xformer_kit import load",
            "tensors imports __init__",
        ),
        (
            "xformer_kit/config/saved/identity.py",
            "from xformer_kit.config import compose",
            "config/saved imports config",
        ),
        (
            "xformer_kit/config/faults/check.py",
            "from xformer_kit.config.line import flags",
            "config/faults imports config/line",
        ),
        (
            "xformer_kit/data/order.py",
            "from xformer_kit.data.corpus import CORPORA",
            "data imports data/corpus",
        ),
        ("xformer_kit/api.py", "from tasks.run import start", "api imports tasks/run"),
        (
            "tasks/callbacks/stopping.py",
            "from tasks.run import start",
            "tasks/callbacks imports tasks/run",
        ),
        (
            "tasks/modules/module.py",
            "from tasks.callbacks import R",
            "tasks/modules imports tasks/callbacks",
        ),
        (
            "tasks/run/start.py",
            "def f():\n    from tasks import cli",
            "tasks/run imports tasks/cli",
        ),
        (
            "tasks/process/seeds.py",
            "from tasks.run.start import s",
            "tasks/process imports tasks/run",
        ),
    ],
)
def test_a_forbidden_import_is_found(file, line, fault):
    assert faults(list(imports(line, file))) == [fault]


def test_files_that_import_each_other_are_found():
    back = list(imports("def f():\n    from tasks.run import start", "tasks/process/processes.py"))
    assert cycle(tasks_imports() + back, "tasks", late=True) >= {
        "tasks/process/processes.py",
        "tasks/run/start.py",
    }
    assert cycle(tasks_imports() + back, "tasks", late=False) == set()


def test_imports_for_types_and_of_earlier_layers_are_allowed():
    types = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from xformer_kit.plan import x\n"
    )
    assert faults(list(imports(types, "xformer_kit/kernel/base.py"))) == []
    assert faults(list(imports("import xformer_kit.generate", "xformer_kit/model/model.py"))) == []
