"""docs/parity.md has every family, and the columns of the command.

If not: xformer parity --output docs/parity.md
"""

from pathlib import Path

from xformer_kit.hub.family import model_types
from xformer_kit.parity.measures import MEASURES
from xformer_kit.parity.table import HEADINGS, chosen, model_type_of

PAGE = (Path(__file__).parents[2] / "docs" / "parity.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table that starts with a heading."""
    table = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]


def test_the_page_has_every_family():
    heading, _, *lines = rows("model")
    assert heading == [*HEADINGS]
    cases = {name: f"`{model_type_of(case)}`" for name, case in chosen().items()}
    assert {(name, model_type) for name, model_type, *_ in lines} <= {*cases.items()}
    assert {model_type for _, model_type, *_ in lines} == {f"`{name}`" for name in model_types()}


def test_every_value_of_the_page_is_within_its_bound():
    for _, _, *cells in rows("model")[2:]:
        for measure, cell in zip(MEASURES, cells, strict=True):
            exact = cell in ("-", "equal")
            assert exact or 0 <= float(cell) <= measure.bound, (measure.heading, cell)
