"""Show the differences between two models before either is built: values of their configs,
parameters, FLOPs, memory, kernels, and which parameters they share. Each side is overrides as on
train.py's command line, in quotes if there are several, or a run's directory; with one side, the
other is the default model.
"""

import re
from collections.abc import Iterable
from typing import Any

from tasks import State
from tasks.cli.command import (
    console,
    print_json,
    say,
    short,
    show_sections,
    size,
    styled,
    table,
)
from tasks.run.faults import refuse
from xformer_kit.registry import ConfigError, config_error

DEFAULT = "the default model"
SUMMARY = "two models side by side: values, cost, kernels and parameters that differ"
EXAMPLES = """examples:
  xformer diff position=alibi
  xformer diff attn.kv_heads=2 attn.kv_heads=1
  xformer diff "model.layers=6 ffn.width=1024" "model.layers=12 ffn.width=512"
  xformer diff outputs/decoder/2026-11-20_12-00-00 placement=post --json"""
OPTIONS = {
    "what* OVERRIDES | RUN": "one side, or two",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from xformer_kit.inspect.diff import diff

    if not 1 <= len(args.what) <= 2:
        raise config_error(
            "diff",
            "takes one side or two",
            got=len(args.what),
            fix=(
                'Put the overrides of a side into quotes: xformer diff "attn.heads=4'
                ' position=alibi" attn.heads=2.'
            ),
        )
    sides = args.what if len(args.what) == 2 else ["", *args.what]
    configs, sizes, titles = _subjects(sides, args.components)
    found = diff(configs[0], configs[1], sizes)
    if args.json:
        print_json(_plain(found, titles))
    else:
        _show(found, titles)
    return 0


def _subjects(sides: list[str], components: list[str]) -> Any:
    """Of both sides: configs, sizes of their vocabularies, and titles. Raises ConfigError with the
    faults of both, each with the side that it is of, if two were typed.
    """
    from tasks.cli.describe import described
    from xformer_kit.config.size import ensure_countable
    from xformer_kit.inspect.describe import vocabulary

    found, faults = [], []
    for mark, side in zip("AB", sides, strict=True):
        try:
            config, size, _, title = described(words(side), components, "diff")
            ensure_countable(config)
            found.append((config, size or vocabulary(config), title or DEFAULT))
        except ConfigError as error:
            whose = f"{mark} ({side.strip() or DEFAULT})"
            faults += [fault.under(whose) if all(sides) else fault for fault in error.faults]
    refuse(faults)
    return zip(*found, strict=True)


def words(side: str) -> list[str]:
    """The overrides of a side, separated by blanks before the next `key=`."""
    return re.split(r"\s+(?=[+~]{0,2}[\w./@]+=)", side.strip()) if side.strip() else []


def _show(found: Any, titles: list[str]) -> None:
    screen = console()
    for mark, title in zip("AB", titles, strict=True):
        say(screen, (f"{mark}  ", "bold cyan"), (title, "bold"))
    sections = {
        "Values": _pairs([(name, *map(_said, both)) for name, *both in found.values])
        or styled("no value differs"),
        "Cost": _costs(found),
        "Kernels": _pairs((name, one or "", other or "") for name, one, other in found.kernels)
        or styled("the same"),
        "Parameters": _parameters(found),
    }
    show_sections(screen, sections, found.unknown)


def _pairs(rows: Iterable[Any], *more: str) -> Any:
    """A table of names and their cells on both sides; None without rows."""
    page = table("", "A", "B", *more, right=("A", "B", *more), padding=(0, 2, 0, 0))
    page.columns[0].style = "dim"
    for row in rows:
        page.add_row(*row)
    return page if page.row_count else None


def _said(value: Any) -> str:
    from xformer_kit.inspect.components import written
    from xformer_kit.inspect.diff import MISSING

    return "" if value is MISSING else written(value)


def _costs(found: Any) -> Any:
    def row(name: str, one: Any, other: Any) -> Any:
        unit = size if name.startswith("memory") else short
        cells = ("not known" if figure is None else unit(figure) for figure in (one, other))
        ratio = f"{other / one:.3g}" if one and other is not None else ""
        return name, *cells, styled(ratio, "dim" if one == other else "bold")

    return _pairs((row(*cost) for cost in found.costs), "B / A")


def _parameters(found: Any) -> Any:
    from rich.console import Group

    shares = [100 * found.shared / pair for pair in found.costs[0][1:] if pair]
    shown = " and ".join(
        f"{share:.3g} % of {mark}'s" for share, mark in zip(shares, "AB", strict=False)
    )
    note = styled(
        f"{short(found.shared)} in tensors of one name and shape, {shown}: with one seed and one"
        " init they start equal"
    )

    def row(name: str, *shapes: Any) -> Any:
        *both, number = shapes
        cells = ("" if shape is None else " x ".join(map(str, shape)) for shape in both)
        return name + (f"  x{number}" if number > 1 else ""), *cells

    return Group(*filter(None, (note, _pairs(row(*tensors) for tensors in found.tensors))))


def _plain(found: Any, titles: list[str]) -> State:
    from xformer_kit.inspect.diff import MISSING

    def sides(pairs: Any) -> State:
        return {name: [None if side is MISSING else side for side in both] for name, *both in pairs}

    return {
        "sides": titles,
        "values": sides(found.values),
        "costs": sides(found.costs),
        "kernels": sides(found.kernels),
        "tensors": [tensors._asdict() for tensors in found.tensors],
        "shared_parameters": found.shared,
        "unknown": found.unknown,
    }
