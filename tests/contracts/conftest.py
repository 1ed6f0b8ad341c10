"""The components of contract_*.py are registered for the tests of this directory only."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from xformer_kit.plan import KINDS

sys.path.insert(0, str(Path(__file__).parent))  # modules are imported by name, also by workers

from compositions import CONTRACT_MODULES


@pytest.fixture(scope="module", autouse=True)
def contract_components() -> Iterator[None]:
    for name in CONTRACT_MODULES:
        sys.modules.pop(name, None)
        importlib.import_module(name)
    yield
    for registry in KINDS.values():
        for name in CONTRACT_MODULES:
            registry.forget(name)
