"""The components of docs/examples compose with the overrides that they state and keep the laws."""

from pathlib import Path

import pytest

from docs.contract_page import EXAMPLES
from tests.user_components import forget_user_components
from xformer_kit import compose
from xformer_kit.config import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.laws import LAWS, check_file, checking
from xformer_kit.laws.registry import SLOW
from xformer_kit.laws.trials import trials

ROOT = Path(__file__).parents[2]
FAST = {"ascii", "step_decay"}  # their kinds have laws without models
FILES = [
    pytest.param(path, id=path.stem, marks=() if path.stem in FAST else pytest.mark.extended)
    for path in sorted(EXAMPLES.glob("*.py"))
]


@pytest.fixture(autouse=True)
def at_the_root_and_forgotten(monkeypatch):
    monkeypatch.chdir(ROOT)
    yield
    registries = GROUPS | NESTED_GROUPS | MAPPING_GROUPS
    forget_user_components(registries.values())


@pytest.mark.parametrize("path", FILES)
def test_an_example_composes_as_stated_and_keeps_the_laws(path, monkeypatch):
    """In one composition, the laws that do not compile it."""

    def one_trial(kind, name):
        return [next(trial for trial in trials(kind, name) if not trial.faults)]

    monkeypatch.setattr(checking, "trials", one_trial)
    monkeypatch.setattr(checking, "LAWS", {law: LAWS[law] for law in LAWS if law not in SLOW})
    command = path.read_text().split('"""')[1].partition("python train.py")[2]
    components, *words = command.split()
    assert components == f"components=[{path.relative_to(ROOT)}]" and words
    compose([components, *words])
    (check,) = check_file(str(path))
    assert [result.sentence for result in check.results if result.verdict == "broken"] == []
    kept = sum(result.verdict == "ok" for result in check.results)
    assert kept > 1 or not check.has_laws
