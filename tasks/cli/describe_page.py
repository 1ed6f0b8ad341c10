"""The page that `xformer describe` prints: tree, costs, kernels and values of a model."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tasks import Facts
from tasks.cli.command import (
    console,
    format_bytes,
    format_count,
    print_sections,
    print_wrapped,
    styled,
    table,
)
from tasks.cli.loss_text import loss_memory, loss_way
from tasks.logging.run_length import format_length
from xformer_kit.data.run_length import known_steps
from xformer_kit.inspect.components import as_yaml
from xformer_kit.inspect.describe import Description
from xformer_kit.inspect.tree import ModuleNode


def print_page(
    description: Description, config: Facts, title: str, parameters: bool = False
) -> None:
    """Print the page of a model; with `parameters`, also the table of its parameters."""
    print_wrapped((title or "the default model", "bold"))
    print()
    console().print(_tree(description))
    sections = {
        "Length of the run": styled(_length(description, config)),
        "FLOPs per token": _flops(description),
        "Memory of training": _memory(description, config),
        "Cache for generation": _cache(description),
        "Kernels": _kernels(description),
        "Loss": _losses(description),
        "Values": _values(description),
    }
    if parameters:
        sections["Parameters"] = _parameters(description)
    print_sections(sections, description.unknown)


def _parameters(description: Description) -> Table:
    """Returns the table of parameters, with the facts of ParameterInfo that are true."""
    rows = []
    for row in description.parameters:
        info, count = row.info, f"{row.number} x" if row.number > 1 else ""
        facts = {
            "writes to the stream": info.writes,
            "multiplied by gate": info.multiplied_by_gate,
            "bias": info.bias,
            "scales output": info.scales_output and not info.writes,
            "shared by heads": info.shared_by_heads,
            "no decay": len(row.shape) > 1 and not info.decays,
            "its gradient may be zero": info.zero_gradient,
        }
        axes = " x ".join(info.axes) if info.axes else "not stated"
        sizes = " x ".join(map(str, row.shape))
        true = ", ".join(name for name, holds in facts.items() if holds)
        rows.append((count, row.name, sizes, info.role, axes, true))
    headings = "", "parameter", "shape", "role", "axes", "facts"
    return table(rows, headings, styles=("dim", *[""] * 4, "dim"), right={0}, no_wrap={0, 1, 2})


def _tree(description: Description) -> Table:
    """Returns the tree of modules."""
    rows = []
    for name, node, depth in _tree_lines(description.tree):
        style = "bold" if depth < 2 else "" if depth < 4 else "dim"
        cells = (
            name,
            _node_description(node),
            _format_cost(node.parameters * node.times),
            "" if node.flops is None else _format_cost(node.flops * node.times),
        )
        rows.append(map(styled, cells, (style, "dim", style, style)))
    headings = "", "", "parameters", "FLOPs/token"
    return table(rows, headings, right=(2, 3), no_wrap=(0, 2, 3))


def _node_description(node: ModuleNode) -> str:
    if node.times == 1:
        return node.description
    if "," in node.name:
        return f"layers {node.name}, one shown"
    return f"{node.description}, one shown" if node.description else "one shown"


def _format_cost(number: float) -> str:
    return format_count(number) if number else "-"


def _tree_lines(
    node: ModuleNode, lead: str = "", branch: str = "", depth: int = 0
) -> Iterator[tuple[str, ModuleNode, int]]:
    """Yields (text, node, depth) per node of the tree. The text has the branches and the name, such
    as `│ ├─ q`.
    """
    title = node.name
    if node.times > 1:  # equal layers: their numbers, or the name of their variant if not adjacent
        title = f"{node.name if ',' not in node.name else node.description or 'base'} x{node.times}"
    below = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    yield lead + branch + title, node, depth
    for child in node.children:
        is_last = child is node.children[-1]
        yield from _tree_lines(child, below, "└─ " if is_last else "├─ ", depth + 1)


def _length(description: Description, config: Facts) -> str:
    if description.steps is not None:
        return format_length(config, description.steps)
    known = f"{config['trainer']['max_epochs']} epochs"
    if (limit := known_steps(config)) is not None:
        known += f", at most {format_length(config, limit)}"
    return f"{known}; the steps of an epoch depend on the data"


def _flops(description: Description) -> Any:
    if description.flops is None:
        return Text("not known")
    forward, training = description.flops.forward, description.flops.training
    seq_len = description.seq_len
    lengths = f"in sequences of {seq_len:,} tokens"
    if _has_two_stacks(description):
        lengths = f"with a source and a target of {seq_len:,} tokens each, tokens of both counted"
    if description.given_logits < 1:
        lengths += f"; {100 * description.given_logits:.3g} % of the tokens get logits"
    rows = [
        ("forward", format_count(forward), lengths),
        ("training", format_count(training), "forward and backward"),
    ]
    total = description.tree.parameters
    if description.active_parameters < total:
        note = f"parameters that a token uses, of {format_count(total)}"
        rows.append(("active", format_count(description.active_parameters), note))
    if frozen := description.frozen_parameters:
        note = f"parameters that are trained; {format_count(frozen)} are frozen"
        rows.append(("trained", format_count(total - frozen), note))
    return table(rows, styles=("", "bold", "dim"), right=[1], no_wrap=[1])


def _memory(description: Description, config: Facts) -> Any:
    memory = description.training_memory
    if memory is None:
        return Text("not known")
    sizes = {  # in total, and at the time of the peak
        "weights": (memory.weights, memory.weights),
        "gradients": (memory.gradients, memory.gradients_at_peak),
        f"optimizer, {config['optim']['name']}": (memory.optimizer, memory.optimizer),
        "activations, saved for backward": (memory.activations, memory.activations_at_peak),
    }
    rows: list[Any] = [
        map(styled, ("", "in total", "at the peak")),
        *((name, *map(format_bytes, pair)) for name, pair in sizes.items()),
        ("temporaries", "", format_bytes(memory.temporaries_at_peak)),
        (Text("peak", "bold"), "", Text(format_bytes(memory.peak), "bold")),
    ]
    sequences = f"{memory.rows} sequences" if memory.rows > 1 else "1 sequence"
    return Group(
        styled(
            f"a micro-batch of {sequences} of {description.seq_len:,} tokens on each device,"
            f" {description.precision}"
        ),
        table(rows, styles=("", "", ""), right=[1, 2], no_wrap=[1, 2]),
        styled("of tensors only; temporaries: other tensors at the peak"),
        styled("a process on a CPU uses about 1.4 times as much, and 0.5 GiB for libraries"),
    )


def _cache(description: Description) -> Table:
    cache = description.cache
    source = " with a source of as many tokens" if _has_two_stacks(description) else ""
    rows = (
        ("per token", format_bytes(cache.per_token), f"of one sequence{source}"),
        ("whole", format_bytes(cache.whole), f"at max_len, {cache.length:,} tokens"),
    )
    return table(rows, styles=("", "bold", "dim"), right=[1], no_wrap=[1])


def _has_two_stacks(description: Description) -> bool:
    return {"encoder", "decoder"} <= {node.name for node in description.tree.children}


def _kernels(description: Description) -> Any:
    rows = [(item.where, item.kernel, "; ".join(item.why)) for item in description.kernels]
    return table(rows, styles=("", "bold", "dim")) if rows else styled("no attention")


def _losses(description: Description) -> Any:
    rows = [
        (item.where, loss_way(item), f"{loss_memory(item)}, on {item.device}")
        for item in description.losses
    ]
    return table(rows, styles=("", "bold", "dim")) if rows else styled("none over the vocabulary")


def _values(description: Description) -> Table:
    """Returns one row per component and origin of values, first of the base, then of the variants
    and stacks that differ from it.
    """
    rows = []
    stacks = {value.variant.split()[0] for value in description.values if value.variant != "base"}
    only_stack = f"{stacks.pop()} " if len(stacks) == 1 else " "  # is left out of its variants
    by_component = lambda value: (value.variant, value.path.split(".")[0])
    for (variant, kind), values in groupby(description.values, by_component):
        label = kind if variant == "base" else f"{variant.removeprefix(only_stack)}: {kind}"
        by_origin: dict[str, list[Text]] = {}
        for value in values:
            by_origin.setdefault(value.origin, []).append(_value(value, kind))
        for origin, texts in by_origin.items():
            # Without the kind, which is in the first column.
            place = origin.replace(f".{kind} (", " (").removesuffix(f".{kind}")
            style = "dim" if origin == "default" else "yellow"
            rows.append((label, Text(" ").join(texts), Text(place, style)))
            label = ""
    return table(rows, styles=("cyan", "", ""), no_wrap=[2])


def _value(value: Any, kind: str) -> Text:
    if value.path == kind:
        return Text(str(value.value), "bold")
    return Text(f"{value.path.removeprefix(f'{kind}.')}={as_yaml(value.value)}")
