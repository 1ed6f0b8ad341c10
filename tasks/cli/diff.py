"""Show the differences between two models before either is built: values of their configs,
parameters, FLOPs, memory, kernels, and the parameters that have the same name and shape. Each side
is a list of overrides, as on train.py's command line and in quotes if there are several, or a run's
directory. One side is compared with the default model.
"""

import re
from collections.abc import Iterable
from typing import Any

from tasks import State
from tasks.cli.command import (
    format_bytes,
    format_count,
    print_line,
    print_result,
    print_sections,
    styled,
    table,
)
from tasks.process.command_faults import refuse
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.text.command_lines import xformer

DEFAULT = "the default model"
SUMMARY = "two models side by side: values, cost, kernels and parameters that differ"
EXAMPLES = """examples:
  xformer diff position=alibi
  xformer diff attn.kv_heads=2 attn.kv_heads=1
  xformer diff "model.layers=6 ffn.width=1024" "model.layers=12 ffn.width=512"
  xformer diff outputs/decoder/2026-11-20_12-00-00 placement=post --json"""
OPTIONS = {
    "inputs* OVERRIDES | RUN": "one side, or two",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from xformer_kit.inspect.diff import diff

    sides = args.inputs
    if not 1 <= len(sides) <= 2:
        raise config_error(
            "diff",
            "takes one side or two",
            got=len(sides),
            fix=(
                "Put the overrides of a side into quotes: "
                + xformer("diff", "attn.heads=4 position=alibi", "attn.heads=2")
            ),
        )
    (one, other), vocab_sizes, titles = _resolve_sides(sides if sides[1:] else ["", *sides], args)
    difference = diff(one, other, vocab_sizes)
    return print_result(args, _plain(difference, titles), _print, difference, titles)


def _resolve_sides(sides: list[str], args: Any) -> Any:
    """Returns the configs, vocabulary sizes and titles of both sides. Raises ConfigError with the
    faults of both; if two sides were typed, each fault names its side.
    """
    from tasks.cli.describe import model_to_describe
    from xformer_kit.config.faults.size import ensure_countable
    from xformer_kit.inspect.vocabulary import vocabulary

    found, faults = [], []
    for mark, side in zip("AB", sides, strict=True):
        try:
            config, vocab_size, _, title = model_to_describe(
                split_overrides(side), args.components, "diff"
            )
            ensure_countable(config)
            found.append((config, vocab_size or vocabulary(config), title or DEFAULT))
        except ConfigError as error:
            label = f"{mark} ({side.strip() or DEFAULT})"
            faults += [fault.under(label) if all(sides) else fault for fault in error.faults]
    refuse(faults)
    return zip(*found, strict=True)


def split_overrides(side: str) -> list[str]:
    """Returns the overrides of a side, split at blanks before the next `key=`."""
    return re.split(r"\s+(?=[+~]{0,2}[\w./@]+=)", side.strip()) if side.strip() else []


def _print(difference: Any, titles: list[str]) -> None:
    for mark, title in zip("AB", titles, strict=True):
        print_line((f"{mark}  ", "bold cyan"), (title, "bold"))
    values = ((name, *map(_value, sides)) for name, *sides in difference.values)
    kernels = ((name, one or "", other or "") for name, one, other in difference.kernels)
    sections = {
        "Values": _two_columns(values) or styled("no value differs"),
        "Cost": _costs(difference),
        "Kernels": _two_columns(kernels) or styled("the same"),
        "Parameters": _parameters(difference),
    }
    print_sections(sections, difference.unknown)


def _two_columns(rows: Iterable[Any], *more: str) -> Any:
    """Returns a table with a column of names and one per side; None without rows."""
    page = table(rows, ("", "A", "B", *more), styles=("dim",), right=(1, 2, 3))
    return page if page.row_count else None


def _value(value: Any) -> str:
    from xformer_kit.inspect.components import as_yaml
    from xformer_kit.inspect.diff import MISSING

    return "" if value is MISSING else as_yaml(value)


def _costs(difference: Any) -> Any:
    def row(name: str, one: Any, other: Any) -> Any:
        to_text = format_bytes if name.startswith("memory") else format_count
        cells = ("not known" if cost is None else to_text(cost) for cost in (one, other))
        ratio = f"{other / one:.3g}" if one and other is not None else ""
        return name, *cells, ratio

    return _two_columns((row(*cost) for cost in difference.costs), "B / A")


def _parameters(difference: Any) -> Any:
    from rich.console import Group

    note = styled(
        f"{format_count(difference.shared)} in tensors of the same name and shape: equal at the"
        " start with the same seed and init"
    )

    def row(name: str, *shapes: Any) -> Any:
        *sides, layers = shapes
        cells = ("" if shape is None else " x ".join(map(str, shape)) for shape in sides)
        return name + (f"  x{layers}" if layers > 1 else ""), *cells

    rows = _two_columns(row(*tensors) for tensors in difference.tensors)
    return Group(*filter(None, (note, rows)))


def _plain(difference: Any, titles: list[str]) -> State:
    """Returns the differences as plain data, for --json."""
    from xformer_kit.inspect.diff import MISSING

    def by_name(rows: Any) -> State:
        return {
            name: [None if side is MISSING else side for side in sides] for name, *sides in rows
        }

    return {
        "sides": titles,
        "values": by_name(difference.values),
        "costs": by_name(difference.costs),
        "kernels": by_name(difference.kernels),
        "tensors": [tensors._asdict() for tensors in difference.tensors],
        "shared_parameters": difference.shared,
        "unknown": difference.unknown,
    }
