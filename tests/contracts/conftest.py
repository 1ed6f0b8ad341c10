"""The throw-away parts are registered for the tests of this directory only."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from xformer_kit.plan import KINDS

NAME = "contract_parts"
sys.path.insert(
    0, str(Path(__file__).parent)
)  # the parts and compositions are imported by name, also by workers


@pytest.fixture(scope="module", autouse=True)
def parts() -> Iterator[ModuleType]:
    sys.modules.pop(NAME, None)
    yield importlib.import_module(NAME)
    for registry in KINDS.values():
        registry.forget(NAME)
