"""Plots of masks, of the biases of positions, and of attention weights. Queries are rows, keys are
columns.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xformer_kit.inspect.layers import format_ranges, group_equal
from xformer_kit.inspect.matrix_grid import Panel, Row, Scale, plot_grid
from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.style import INK, WIDTH, integer_ticks, line_style, marker_places
from xformer_kit.mask import MASKS, Mask
from xformer_kit.mask.base import matrix
from xformer_kit.model.model import Model
from xformer_kit.position import POSITIONS, Position
from xformer_kit.registry import ConfigError, Context, Node, Registry, config_error
from xformer_kit.tensors.tokens import Tokens


def plot_mask(
    mask: Mask | str | Node | Model,
    length: int = 64,
    *,
    heads: int = 4,
    prefix: int = 0,
) -> Picture:
    """Plots a mask: a cell is filled if the query of its row sees the key of its column.

    mask: a mask, its name or config, or a model, whose different masks are all plotted. length: in
    tokens. heads: number of heads, for a mask that differs between heads; a model's own number
    replaces it. prefix: length of the prefix in tokens, for masks with a bidirectional prefix.
    Raises ConfigError for an invalid mask.
    """
    if isinstance(mask, Model):
        masks = list(_masks_of_model(mask))
    elif isinstance(mask, Mask):
        masks = [(_mask_text(mask), mask, heads)]
    else:
        node = _complete_node(MASKS, mask)
        built = MASKS.create(node)
        masks = [(_mask_text(built), built, heads)]
    rows = []
    for title, each, count in masks:
        cells = matrix(each, length, count, prefix)
        rows.append(
            _row_of_heads(title, cells) if each.per_head else Row(title, [Panel("", cells)])
        )
    return plot_grid(rows, Scale(0.0, 1.0))


def plot_bias(
    position: Position | str | Node | Model,
    length: int = 64,
    *,
    heads: int = 8,
    future: bool = True,
) -> Picture:
    """Plots the bias that a position adds to the scores: one line per head over the distance, or
    one panel per head if the bias depends on more than the distance.

    position: a built position, the name or config of one without learned parameters, or a model,
    whose positions with a bias are all plotted. length: in tokens. heads: number of heads, and
    future: whether keys after the query are plotted; a model's own replace both. Raises ConfigError
    for a position without a bias, and for a learned one that is not built.
    """
    if isinstance(position, Model):
        biases = list(_biases_of_model(position, length))
    elif isinstance(position, Position):
        biases = [_bias("", position, length, heads, future)]
    else:
        biases = [_bias_of_node(_complete_node(POSITIONS, position), length, heads, future)]
    if all(bias.relative for bias in biases):
        return _plot_over_distance(biases)
    rows = [_row_of_heads(bias.name, bias.values) for bias in biases]
    return plot_grid(rows, Scale(*_extremes(rows), "added to the score"))


def plot_attention(
    weights: Mapping[str, Tensor] | Tensor,
    tokens: Sequence[str] | None = None,
    *,
    source: Sequence[str] | None = None,
    row: int = 0,
    heads: Sequence[int] | None = None,
) -> Picture:
    """Plots attention weights: the darker a cell, the larger the weight of the key of its column
    for the query of its row.

    weights: the result of `attention_weights`, or a tensor ((batch,) (heads,) queries, keys).
    tokens: names of the tokens; with two stacks those of the decoder, and `source` those of the
    encoder. row: index of the sequence in the batch. heads: numbers of the heads in the weights, if
    they are not all heads. Negative weights, which some attentions have, have another colour.
    """
    by_name = weights if isinstance(weights, Mapping) else {"": weights}
    rows = [
        _row_of_weights(name, values, row, heads, tokens, source)
        for name, values in by_name.items()
    ]
    low, high = _extremes(rows)
    label = "weight" if low < 0 else "weight, shaded by its square root"
    return plot_grid(rows, Scale(low, high, label, root=True))


def _complete_node(registry: Registry, node: Any) -> dict[str, Any]:
    """A component's node with its defaults. Raises ConfigError with its faults."""
    node = registry.complete(node)
    if faults := list(registry.faults(node, registry.kind, Context())):
        raise ConfigError(faults)
    return node


def _extremes(rows: Sequence[Row]) -> tuple[float, float]:
    """The smallest and the largest value of all panels."""
    values = torch.cat([panel.values.flatten() for row in rows for panel in row.panels])
    return float(values.min()), float(values.max())


def _row_of_heads(title: str, values: Tensor) -> Row:
    return Row(title, [Panel(f"head {head}", matrix) for head, matrix in enumerate(values)])


def _masks_of_model(model: Model) -> Iterator[tuple[str, Mask, int]]:
    """(title, mask, heads) of the masks of each stack; equal ones of several layers once."""
    for name in model.names:
        stack: Any = model.get_submodule(name)
        masks = (
            (
                depth,
                (sublayer, stack.attention_groups[group].mask, stack.attention_groups[group].heads),
            )
            for depth, block in enumerate(stack.layers)
            for sublayer, group in block.attention_group_of.items()
        )
        for (sublayer, mask, heads), depths in group_equal(masks).items():
            place = f"{name}.{format_ranges(depths)}.{sublayer}"
            yield f"{place}\n{_mask_text(mask)}", mask, heads


def _mask_text(mask: Mask) -> str:
    """The name and the options of a mask: sliding_window(window=4, causal=True)."""
    return (
        repr(mask)
        .replace(type(mask).__name__, MASKS.name_of(type(mask)) or type(mask).__name__)
        .removesuffix("()")
    )


class Bias(NamedTuple):
    name: str
    values: Tensor  # (heads, queries, keys)
    relative: bool  # whether it depends on the distance only
    future: bool  # whether keys after the query are visible


def _biases_of_model(model: Model, length: int) -> Iterator[Bias]:
    """Yields the biases on scores of `length` tokens, per stack one of each position and number of
    heads. Raises ConfigError if no position has a bias.
    """
    biased = False
    for name in model.names:
        stack: Any = model.get_submodule(name)
        different: dict[tuple[str, int], Any] = {}
        for group in stack.attention_groups:
            different.setdefault((group.position, group.heads), group)
        for group in different.values():
            if "bias" in stack.position_enters[group.position]:
                biased = True
                title = name if group.position == "base" else f"{name} {group.position}"
                future = group.cross or group.mask.sees_future
                position = stack.position[group.position]
                yield _bias(title, position, length, group.heads, future)
    if not biased:
        raise _no_bias("none of the model's adds a bias to scores")


def _bias_of_node(node: Node, length: int, heads: int, future: bool) -> Bias:
    if POSITIONS[node["name"]].learned:
        raise config_error(
            "position",
            f"'{node['name']}' learns its bias",
            fix="Give a model with it, or its own, such as model.decoder.position['base'].",
        )
    sizes = {"dim": 8 * heads, "heads": heads, "head_dim": 8, "max_len": length, "layers": 1}
    position = POSITIONS.create(node, **sizes, stack="decoder")
    return _bias(node["name"], position, length, heads, future)


def _no_bias(rule: str) -> ConfigError:
    names = [name for name, component in POSITIONS.items() if "bias" in component.enters]
    return config_error("position", rule, fix=f"Those that do: {', '.join(names)}.")


@torch.no_grad()
def _bias(title: str, position: Position, length: int, heads: int, future: bool) -> Bias:
    kind = POSITIONS.name_of(type(position)) or type(position).__name__
    if "bias" not in position.enters:
        raise _no_bias(f"'{kind}' adds no bias to scores")
    device = next((x.device for x in (*position.parameters(), *position.buffers())), None)
    slot = torch.arange(length, device=device)[None]
    tokens = Tokens(slot=slot, position=slot)
    head = torch.arange(heads, device=device).view(1, -1, 1, 1)
    bias = position.prepare(tokens, tokens).bias(tokens.as_query(), tokens.as_key(), head)
    values = bias.expand(1, heads, length, length)[0].float().cpu()
    name = title if title == kind else f"{title} {kind}".strip()
    return Bias(name, values, "shift" not in position.breaks, future)


def _row_of_weights(
    name: str,
    weights: Tensor,
    row: int,
    heads: Sequence[int] | None,
    tokens: Sequence[str] | None,
    source: Sequence[str] | None,
) -> Row:
    """One panel per head of an attention."""
    if weights.ndim == 4:
        weights = weights[row]
    weights = weights.detach().float().cpu().view(-1, *weights.shape[-2:])
    queries = keys = tokens or ()
    if source is not None and name.startswith("encoder."):
        queries = keys = source
    elif source is not None and name.rpartition(".")[2].startswith("cross"):
        keys = source
    learned = weights.shape[-1] - len(keys)  # learned keys, before those of tokens
    if keys and learned > 0:
        keys = [*(f"learned {i}" for i in range(learned)), *keys]
    numbers = range(len(weights)) if heads is None else heads
    panels = [
        Panel(f"head {number}", values, queries, keys)
        for number, values in zip(numbers, weights, strict=True)
    ]
    return Row(name, panels)


def _plot_over_distance(biases: Sequence[Bias]) -> Picture:
    """Biases over the distance of key and query: one panel per bias, one line per head."""

    def draw(figure: Any) -> None:
        panels = figure.subplots(len(biases), 1, squeeze=False)[:, 0]
        for axes, bias in zip(panels, biases, strict=True):
            _plot_heads(axes, bias)
        panels[-1].set_xlabel("key - query, tokens")

    most_heads = max(len(bias.values) for bias in biases)
    return Picture(WIDTH, (3.1 + 0.09 * most_heads) * len(biases), draw)


def _plot_heads(axes: Any, bias: Bias) -> None:
    heads, length, _ = bias.values.shape
    distances = range(1 - length, length if bias.future else 1)
    # the last query's distances to all keys, then the first query's to later keys
    lines = torch.cat([bias.values[:, -1], bias.values[:, 0, 1:]], 1)[:, : len(distances)]
    for head, line in enumerate(lines.tolist()):
        style = line_style(head) | marker_places(head, len(line))
        axes.plot(distances, line, label=f"head {head}", **style)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_title(bias.name)
    axes.set_ylabel("added to the score")
    integer_ticks(axes.xaxis)
    columns = math.ceil(heads / 10)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, ncols=columns)
