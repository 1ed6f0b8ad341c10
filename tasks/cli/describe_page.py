"""A description of a model, set for a terminal."""

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tasks.cli.command import grid, say, short, size
from tasks.types import Facts
from xformer_kit.inspect.describe import Description
from xformer_kit.inspect.parts import written
from xformer_kit.inspect.tree import Node


def show(screen: Console, found: Description, config: Facts, title: str) -> None:
    """Print the page: tree, cost, kernels, values."""
    say(screen, (title or "the default model", "bold"), soft_wrap=False)
    sections = (
        ("", _tree(found, screen.width)),
        ("FLOPs per token", _flops(found)),
        ("Memory of training", _memory(found, config)),
        ("Cache for generation", _cache(found)),
        ("Kernels", _kernels(found)),
        ("Values", _values(found)),
    )
    for heading, body in sections:
        screen.print()
        if heading:
            say(screen, (heading, "bold cyan"), soft_wrap=False)
        screen.print(body if not heading else Padding(body, (0, 0, 0, 2), expand=False))
    for sentence in found.unknown:
        screen.print()
        say(screen, (sentence, "yellow"), soft_wrap=False)


def _tree(found: Description, width: int) -> Table:
    """The tree of modules; descriptions wrap inside their column, next to the branches."""
    lines = list(_lines(found.tree))
    room = max(
        16, width - max(len(name) for name, *_ in lines) - len("parameters  FLOPs/token  ") - 4
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading, side in (
        ("", "left"),
        ("", "left"),
        ("parameters", "right"),
        ("FLOPs/token", "right"),
    ):
        table.add_column(heading, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for name, beside, node, depth in lines:
        style = "bold" if depth < 2 else "" if depth < 4 else "dim"
        what = wrap(_what(node), room)
        cost = "" if node.flops is None else _count(node.flops * node.times)
        table.add_row(
            Text("\n".join([name, *[beside] * (len(what) - 1)]), style),
            Text("\n".join(what), "dim"),
            Text(_count(node.parameters * node.times), style),
            Text(cost, style),
        )
    return table


def _title(node: Node) -> str:
    """Folded layers by their numbers, or by their variant where the numbers are many."""
    return node.name if "," not in node.name else node.what or "base"


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
    title = f"{_title(node)} x{node.times}" if node.times > 1 else node.name
    below = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    yield lead + branch + title, below + ("│" if node.children else ""), node, depth
    for child in node.children:
        yield from _lines(child, below, "└─ " if child is node.children[-1] else "├─ ", depth + 1)


def _flops(found: Description) -> Any:
    if found.forward is None or found.training is None:
        return Text("not known")
    table = grid("", "bold", "dim", right=[1])
    ratio = found.training / found.forward if found.forward else 0
    where = f"in sequences of {found.seq_len:,} tokens"
    if _two_stacks(found):
        where = (
            f"with a source and a target of {found.seq_len:,} tokens each, tokens of both counted"
        )
    if found.given_logits < 1:
        where += f", of which {100 * found.given_logits:.3g} % are given logits"
    table.add_row("forward", short(found.forward), where)
    both = f"forward and backward, {ratio:.2f} x forward"
    table.add_row("training", short(found.training), both)
    if found.active < found.tree.parameters:
        said = f"parameters that a token meets, of {short(found.tree.parameters)}"
        table.add_row("active", short(found.active), said)
    return table


def _memory(found: Description, config: Facts) -> Any:
    memory = found.training_memory
    if memory is None:
        return Text("not known")
    table = grid("", "", "", right=[1, 2])
    table.add_row("", "in all", "at the peak", style="dim")
    for name, whole, at_peak in (
        ("weights", memory.weights, memory.weights),
        ("gradients", memory.gradients, memory.gradients_at_peak),
        (f"optimizer, {config['optim']['name']}", memory.optimizer, memory.optimizer),
        ("activations, saved for backward", memory.activations, memory.activations_at_peak),
    ):
        table.add_row(name, size(whole), size(at_peak))
    table.add_row("temporaries", "", size(memory.temporaries_at_peak))
    table.add_row("peak", "", size(memory.peak), style="bold")
    rows = f"{memory.rows} sequences" if memory.rows > 1 else "1 sequence"
    note = f"a micro-batch of {rows} of {found.seq_len:,} tokens on each device, {found.precision}"
    counted = (
        "activations of one micro-batch, without weights; temporaries: what else tensors hold at"
        " the peak, which may be later, in the loss or the optimizer's step"
    )
    said = "what tensors hold; a process also holds its libraries and gaps"
    return Group(Text(note, "dim"), table, Text(counted, "dim"), Text(said, "dim"))


def _cache(found: Description) -> Table:
    cache = found.cache
    table = grid("", "bold", "dim", right=[1])
    whose = "of one sequence" + (" with a source of as many tokens" if _two_stacks(found) else "")
    table.add_row("per token", size(cache.per_token), whose)
    table.add_row("whole", size(cache.whole), f"at max_len, {cache.length:,} tokens")
    return table


def _two_stacks(found: Description) -> bool:
    return {"encoder", "decoder"} <= {node.name for node in found.tree.children}


def _kernels(found: Description) -> Table:
    table = grid("", "bold", "dim")
    for choice in found.kernels:
        table.add_row(choice.where, choice.kernel, "; ".join(choice.why))
    if not found.kernels:
        table.add_row("no attention", style="dim")
    return table


def _values(found: Description) -> Table:
    """One row for all values of a part that have the same origin; changes in stacks and variants
    come last.
    """
    table = grid("cyan", "", "", whole=[2])
    names = {value.variant.split()[0] for value in found.values if value.variant != "base"}
    alone = f"{names.pop()} " if len(names) == 1 else " "  # a single stack is not named
    for variant, kind, values in _by_kind(found):
        shown = kind if variant == "base" else f"{variant.removeprefix(alone)}: {kind}"
        by_origin: dict[str, list[Any]] = {}
        for value in values:
            by_origin.setdefault(value.origin, []).append(value)
        for i, (origin, some) in enumerate(by_origin.items()):
            text = Text(" ").join(_value(value, kind) for value in some)
            plain = origin == "default"
            place = Text(_place(origin, kind), "dim" if plain else "yellow")
            table.add_row("" if i else shown, text, place)
    return table


def _place(origin: str, kind: str) -> str:
    """The origin without the kind, which stands in front."""
    return origin.replace(f".{kind} (", " (").removesuffix(f".{kind}")


def _by_kind(found: Description) -> Iterator[tuple[str, str, list[Any]]]:
    def key(value: Any) -> tuple[str, str]:
        return value.variant, value.path.split(".")[0]

    for (variant, kind), values in groupby(found.values, key):
        yield variant, kind, list(values)


def _value(value: Any, kind: str) -> Text:
    if value.path == kind:
        return Text(str(value.value), "bold")
    return Text(f"{value.path.removeprefix(f'{kind}.')}={written(value.value)}")
