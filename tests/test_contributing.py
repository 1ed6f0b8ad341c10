"""The components in CONTRIBUTING.md are complete: they keep every law, and have as many lines as
stated.
"""

import re
from pathlib import Path

import pytest

from xformer_kit import compose
from xformer_kit.config import GROUPS, MAPPING_GROUPS, import_components
from xformer_kit.laws import check_file

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
SHOWN = re.findall(r"in (\d+) lines:\n\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def forget_registered_components():
    yield
    for registry in (*GROUPS.values(), *MAPPING_GROUPS.values()):
        for module in {component.__module__ for component in registry.values()}:
            if not module.startswith(("xformer_kit.", "tasks.")):
                registry.forget(module)


@pytest.mark.extended
@pytest.mark.parametrize(("lines", "code"), SHOWN, ids=lambda x: x if x.isdigit() else "")
def test_a_component_of_the_page_keeps_every_law(lines, code, tmp_path):
    assert len(code.splitlines()) == int(lines)
    (tmp_path / "component.py").write_text(code)
    [check] = check_file(str(tmp_path / "component.py"))
    assert [result.sentence for result in check.results if result.verdict == "broken"] == []
    assert sum(result.verdict == "ok" for result in check.results) > 15


def test_the_mask_of_the_page_composes_with_the_stated_override(tmp_path):
    (tmp_path / "every.py").write_text(SHOWN[0][1])
    import_components([str(tmp_path / "every.py")], GROUPS.values())
    assert "mask=every" in PAGE
    assert compose(["mask=every"])["mask"] == {"name": "every", "step": 2}
