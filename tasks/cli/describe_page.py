"""A description of a model, set for a terminal."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tasks import Facts
from tasks.cli.command import (
    grid,
    say_wrapped,
    short,
    show_sections,
    size,
    styled,
    table,
)
from xformer_kit.inspect.components import written
from xformer_kit.inspect.describe import Description
from xformer_kit.inspect.tree import Node


def show(screen: Console, found: Description, config: Facts, title: str) -> None:
    """Print the page: tree, cost, kernels, values."""
    say_wrapped(screen, (title or "the default model", "bold"))
    screen.print()
    screen.print(_tree(found, screen.width))
    sections = {
        "FLOPs per token": _flops(found),
        "Memory of training": _memory(found, config),
        "Cache for generation": _cache(found),
        "Kernels": _kernels(found),
        "Values": _values(found),
    }
    show_sections(screen, sections, found.unknown)


def _tree(found: Description, width: int) -> Table:
    """The tree of modules; descriptions wrap inside their column, next to the branches."""
    lines = list(_lines(found.tree))
    costs = "parameters", "FLOPs/token"
    left = max(len(name) for name, *_ in lines)
    room = max(16, width - left - len("  ".join((*costs, ""))) - 4)
    page = table("", "", *costs, right=costs, padding=(0, 2, 0, 0))
    for column in page.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    page.columns[1].style = "dim"
    for name, continuation, node, depth in lines:
        style = "bold" if depth < 2 else "" if depth < 4 else "dim"
        what = wrap(_what(node), room)
        page.add_row(
            Text("\n".join([name, *[continuation] * (len(what) - 1)]), style),
            "\n".join(what),
            Text(_count(node.parameters * node.times), style),
            Text("" if node.flops is None else _count(node.flops * node.times), style),
        )
    return page


def _what(node: Node) -> str:
    if node.times == 1:
        return node.what
    one = "one shown"
    if "," in node.name:
        return f"layers {node.name}, {one}"
    return f"{node.what}, {one}" if node.what else one


def _count(number: float) -> str:
    return short(number) if number else "-"


def _lines(
    node: Node, lead: str = "", branch: str = "", depth: int = 0
) -> Iterator[tuple[str, str, Node, int]]:
    """Every line of the tree with its branches drawn, e.g. `│ ├─ q`, and the prefix of the lines
    below it.
    """
    title = node.name
    if node.times > 1:  # folded layers by their numbers, or by their variant if there are many
        title = f"{node.name if ',' not in node.name else node.what or 'base'} x{node.times}"
    below = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    yield lead + branch + title, below + ("│" if node.children else ""), node, depth
    for child in node.children:
        yield from _lines(child, below, "└─ " if child is node.children[-1] else "├─ ", depth + 1)


def _flops(found: Description) -> Any:
    if found.forward is None or found.training is None:
        return Text("not known")
    ratio = found.training / found.forward if found.forward else 0
    where = f"in sequences of {found.seq_len:,} tokens"
    if _two_stacks(found):
        where = (
            f"with a source and a target of {found.seq_len:,} tokens each, tokens of both counted"
        )
    if found.given_logits < 1:
        where += f", of which {100 * found.given_logits:.3g} % are given logits"
    rows = [
        ("forward", short(found.forward), where),
        ("training", short(found.training), f"forward and backward, {ratio:.2f} x forward"),
    ]
    if found.active < found.tree.parameters:
        said = f"parameters that a token meets, of {short(found.tree.parameters)}"
        rows.append(("active", short(found.active), said))
    return grid(rows, "", "bold", "dim", right=[1])


def _memory(found: Description, config: Facts) -> Any:
    memory = found.training_memory
    if memory is None:
        return Text("not known")
    rows = [
        ("weights", size(memory.weights), size(memory.weights)),
        ("gradients", size(memory.gradients), size(memory.gradients_at_peak)),
        (f"optimizer, {config['optim']['name']}", *[size(memory.optimizer)] * 2),
        (
            "activations, saved for backward",
            size(memory.activations),
            size(memory.activations_at_peak),
        ),
        ("temporaries", "", size(memory.temporaries_at_peak)),
        (Text("peak", "bold"), "", Text(size(memory.peak), "bold")),
    ]
    page = grid([map(styled, ("", "in all", "at the peak")), *rows], "", "", "", right=[1, 2])
    many = f"{memory.rows} sequences" if memory.rows > 1 else "1 sequence"
    note = f"a micro-batch of {many} of {found.seq_len:,} tokens on each device, {found.precision}"
    counted = (
        "activations of one micro-batch, without weights; temporaries: what else tensors hold at"
        " the peak, which may be later, in the loss or the optimizer's step"
    )
    said = "what tensors hold; a process also holds its libraries and gaps"
    return Group(styled(note), page, styled(counted), styled(said))


def _cache(found: Description) -> Table:
    cache = found.cache
    whose = "of one sequence" + (" with a source of as many tokens" if _two_stacks(found) else "")
    rows = (
        ("per token", size(cache.per_token), whose),
        ("whole", size(cache.whole), f"at max_len, {cache.length:,} tokens"),
    )
    return grid(rows, "", "bold", "dim", right=[1])


def _two_stacks(found: Description) -> bool:
    return {"encoder", "decoder"} <= {node.name for node in found.tree.children}


def _kernels(found: Description) -> Any:
    rows = [(choice.where, choice.kernel, "; ".join(choice.why)) for choice in found.kernels]
    return grid(rows, "", "bold", "dim") if rows else styled("no attention")


def _values(found: Description) -> Table:
    """One row for all values of a component that have the same origin; changes in stacks and
    variants come last.
    """
    rows = []
    names = {value.variant.split()[0] for value in found.values if value.variant != "base"}
    alone = f"{names.pop()} " if len(names) == 1 else " "  # a single stack is not named
    of_component = lambda value: (value.variant, value.path.split(".")[0])
    for (variant, kind), values in groupby(found.values, of_component):
        shown = kind if variant == "base" else f"{variant.removeprefix(alone)}: {kind}"
        by_origin: dict[str, list[Any]] = defaultdict(list)
        for value in values:
            by_origin[value.origin].append(value)
        for origin, some in by_origin.items():
            # Without the kind, which stands in front.
            place = origin.replace(f".{kind} (", " (").removesuffix(f".{kind}")
            text = Text(" ").join(_value(value, kind) for value in some)
            rows.append((shown, text, Text(place, "dim" if origin == "default" else "yellow")))
            shown = ""
    return grid(rows, "cyan", "", "", whole=[2])


def _value(value: Any, kind: str) -> Text:
    if value.path == kind:
        return Text(str(value.value), "bold")
    return Text(f"{value.path.removeprefix(f'{kind}.')}={written(value.value)}")
