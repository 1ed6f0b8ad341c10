"""The table of parity: a line for each small model, a column for each measure."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from xformer_kit.config.hydra.hydra_session import conf_dir
from xformer_kit.hub.family import model_types, of_type
from xformer_kit.parity.case import Case
from xformer_kit.parity.cases import CASES
from xformer_kit.parity.measures import MEASURES, Measure
from xformer_kit.parity.pairs import make_pair
from xformer_kit.registry import config_error, suggestion

HEADINGS = ("model", "model_type", *(measure.heading for measure in MEASURES))
ABOUT = (
    "# Parity with transformers",
    "Small models of each family of [published models](guide/published_models.md), compared with"
    " the library `transformers` {transformers}, with torch {torch}, on a CPU. Sizes are small and"
    " odd, and every parameter is random, also biases and weights of norms. `transformers` writes"
    " the files of a model, which are read and written back.",
    "    xformer parity                           # all models: about 3 minutes on one core\n"
    "    xformer parity preset=qwen3\n"
    "    xformer parity --output docs/parity.md   # this page",
    "Numbers are the largest difference, as a share of the largest value, in float64 unless another"
    " precision is named; there `transformers` casts nothing to fp32. `-`: does not apply, since"
    " the model has no cache, no `sdpa` in `transformers`, or a source that is padded on the"
    " right.",
)


class Line(NamedTuple):
    """The values of a model in the order of MEASURES."""

    name: str
    model_type: str
    values: tuple[float | None, ...]

    @property
    def cells(self) -> list[str]:
        found = zip(MEASURES, self.values, strict=True)
        return [self.name, self.model_type, *(cell(measure, value) for measure, value in found)]

    @property
    def above_bounds(self) -> list[str]:
        """A phrase on each value that is above the bound of its measure."""
        return [
            f"{measure.heading} is {value:.1e}, above {measure.bound:g}"
            for measure, value in zip(MEASURES, self.values, strict=True)
            if value is not None and not value <= measure.bound
        ]


def cell(measure: Measure, value: float | None) -> str:
    """Returns the text of a value; above its bound, with an exclamation mark."""
    if value is None:
        return "-"
    text = f"{value:.0e}" if value else ("0" if measure.bound else "equal")
    return text if value <= measure.bound else f"{text}!"


def model_type_of(case: Case) -> str:
    """Returns the model_type of a case."""
    return next(n for n in model_types() if case.architecture in of_type(n).architectures)


def chosen(presets: Iterable[str] = ()) -> dict[str, Case]:
    """Returns the cases of presets, or all, in the order of their model_types. Raises ConfigError.

    A preset with published sizes is one of its family: qwen3_0_6b of qwen3.
    """
    wanted = {model_type for preset in presets for model_type in _model_types(preset)}
    types = {name: model_type_of(case) for name, case in CASES.items()}
    names = sorted(types, key=lambda name: (types[name], list(CASES).index(name)))
    return {name: CASES[name] for name in names if not wanted or types[name] in wanted}


def _model_types(preset: str) -> list[str]:
    """Returns the model_types of a preset or of its family, or a model_type itself."""
    presets = {name: of_type(name).preset for name in model_types()}
    family = preset
    if (Path(conf_dir()) / "preset" / f"{preset}.yaml").is_file():
        family = max(filter(preset.startswith, presets.values()), key=len, default="")
    if found := [name for name, one in presets.items() if one == family]:
        return found
    if preset in presets:
        return [preset]
    known = sorted({*presets, *presets.values()})
    raise config_error("preset", "is of no published family", preset, suggestion(preset, known))


def measured(cases: Mapping[str, Case]) -> Iterator[Line]:
    """Yields the line of each case."""
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            pair = make_pair(case, Path(folder))
            values = tuple(measure.value(pair) for measure in MEASURES)
        yield Line(name, model_type_of(case), values)


def text_line(cells: Iterable[str], names: Iterable[str]) -> str:
    """Returns a line of the table as text; names: of all models, which set the width of the first
    column.
    """
    name, model_type, *values = cells
    first, second = max(map(len, [*names, HEADINGS[0]])), max(map(len, model_types()))
    words = [f"{v:>{max(len(m.heading), 6)}}" for m, v in zip(MEASURES, values, strict=True)]
    return "  ".join([f"{name:<{first}}", f"{model_type:<{second}}", *words])


def page(lines: Iterable[Line]) -> str:
    """Returns the table as a page in Markdown, with the versions of both libraries."""
    versions = {name: version(name) for name in ("transformers", "torch")}
    about = "\n\n".join(ABOUT).format(**versions)
    columns = [(m.heading, f"{m.bound:.0e}" if m.bound else "equal", m.meaning) for m in MEASURES]
    rows = [[line.name, f"`{line.model_type}`", *line.cells[2:]] for line in lines]
    tables = (_table(("column", "bound", "compared"), columns), _table(HEADINGS, rows))
    return "\n\n".join([about, *tables]) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
