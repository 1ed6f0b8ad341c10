"""The notebooks run from the first cell to the last, with the stored outputs."""

import re

import nbformat
import pytest

from notebooks import __main__ as every

pytestmark = pytest.mark.extended

NAMES = [
    "1_attention_from_scratch",
    "2_compose_an_architecture",
    "3_add_a_component",
    "4_read_an_ablation",
    "5_translate_dates",
]
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?(?!\w)")
MAX_BYTES = 1_000_000  # bytes of all notebooks together
TRAINED_TOLERANCE = 0.25  # relative difference of numbers of a model trained on another machine


def read(path):
    return nbformat.read(path, as_version=4)


def outputs(cell) -> list[tuple[str, str]]:
    """Returns (kind, text) of every output; pictures have no text: fonts differ by machine."""
    found = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append((output.name, output.text))
        elif "image/png" in output.data:
            found.append(("picture", ""))
        else:
            found.append(("value", output.data["text/plain"]))
    return found


def same(one: str, other: str, loose: bool) -> bool:
    """Whether words and whole numbers are equal, and decimals up to rounding; `loose`: numbers of a
    trained model are near.
    """
    one, other = (
        " ".join(text.split()) for text in (one, other)
    )  # lines break where numbers are longer
    a, b = NUMBER.findall(one), NUMBER.findall(other)
    if NUMBER.sub("#", one) != NUMBER.sub("#", other) or len(a) != len(b):
        return False
    return all(near(x, y, loose) for x, y in zip(a, b, strict=True))


def near(one: str, other: str, loose: bool) -> bool:
    """Whether two numbers differ by at most a unit of the last digit; if `loose`, by the tolerance
    of a trained model.
    """
    if one == other:
        return True
    x, y = (float(text.replace(",", "")) for text in (one, other))
    unit = 10.0 ** -len(one.partition(".")[2]) if "." in one else 0.0
    if loose:
        return abs(x - y) <= max(2 * unit, 1.0 if not unit else 0.0, TRAINED_TOLERANCE * abs(y))
    return abs(x - y) <= 1.001 * unit


def test_every_notebook_is_tested():
    assert [path.stem for path in every.notebooks()] == NAMES


def test_outputs_are_stored_and_small():
    assert sum(path.stat().st_size for path in every.notebooks()) < MAX_BYTES
    for path in every.notebooks():
        cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), (
            "run python -m notebooks"
        )
        kinds = {kind for cell in cells for kind, _ in outputs(cell)}
        assert "picture" in kinds and "stdout" in kinds and "stderr" not in kinds, path.name
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/tmp/|/home/|/root/|0x[0-9a-f]{6}|\\u001b", text), (
            f"{path.name}: depends on the machine"
        )


@pytest.mark.parametrize(
    ("one", "other", "loose", "equal"),
    [
        ("loss 1.27", "loss 1.28", False, True),
        ("loss 1.27", "loss 1.29", False, False),
        ("loss 1.27", "lost 1.27", False, False),
        ("124,439,808 parameters", "124,439,809 parameters", False, False),
        ("3 seeds", "3 seeds more", False, False),
        ("79 right", "84 right", True, True),
        ("79 right", "40 right", True, False),
        ("w3 is 1", "w4 is 1", True, False),
    ],
)
def test_outputs_that_count_as_the_same(one, other, loose, equal):
    assert same(one, other, loose) == equal


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_has_the_stored_outputs(name):
    path = every.FOLDER / f"{name}.ipynb"
    before = read(path)
    after = every.executed(path)
    for number, (old, new) in enumerate(zip(before.cells, after.cells, strict=True)):
        if old.cell_type != "code":
            continue
        stored, new_outputs = outputs(old), outputs(new)
        loose = "trained" in old.metadata.get("tags", ())
        alike = [
            a == b and same(x, y, loose)
            for (a, x), (b, y) in zip(stored, new_outputs, strict=False)
        ]
        assert len(stored) == len(new_outputs) and all(alike), (
            f"{name}, cell {number}: stored {stored}, now {new_outputs}. python -m notebooks"
        )
