"""The components in CONTRIBUTING.md are files of docs/examples."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_each_component_of_the_page_is_an_example():
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    examples = {path.read_text() for path in (ROOT / "docs" / "examples").glob("*.py")}
    assert len(shown) == 2 and examples.issuperset(shown)
