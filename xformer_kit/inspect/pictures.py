"""Pictures of masks, of biases of positions, and of attention weights. Queries are rows, keys are
columns.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.sheet import Panel, Row, Scale, sheet
from xformer_kit.inspect.style import INK, WIDTH, line_style, markers, whole
from xformer_kit.inspect.tree import ranges
from xformer_kit.mask import MASKS, Mask
from xformer_kit.mask.base import matrix
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens
from xformer_kit.position import POSITIONS, Position
from xformer_kit.registry import ConfigError, Context, Node, Registry, config_error


def plot_mask(
    mask: Mask | str | Node | Model,
    length: int = 64,
    *,
    heads: int = 4,
    prefix: int = 0,
) -> Picture:
    """A mask: a cell is filled where the query of its row sees the key of its column.

    mask: a mask, the name or the config of one, or a model, of which every mask that differs is
    drawn. length: tokens.
    heads: drawn of a mask whose heads differ. prefix: how many of the first tokens are of a prefix,
    for the masks that see one whole. Raises ConfigError for a mask that is not known.
    """
    _sized(length=length, heads=heads)
    rows = [_mask(name, one, length, count, prefix) for name, one, count in _masks(mask, heads)]
    return sheet(rows, Scale(0.0, 1.0))


def plot_bias(
    position: Position | str | Node | Model,
    length: int = 64,
    *,
    heads: int = 8,
    future: bool = True,
) -> Picture:
    """The bias that a position adds to scores: a line for each head over the distance, or a panel
    if it depends on more.

    position: the name or the config of one that learns nothing, a built one, or a model, of which
    every such position is drawn.
    length: tokens. heads: of the attention, without a model. future: whether keys after the query
    are drawn, without a model. Raises ConfigError for a position without a bias, and for one that
    learns it and is not built.
    """
    _sized(length=length, heads=heads)
    found = list(_biases(position, length, heads, future))
    if all(one.relative for one in found):
        return _lines(found)
    rows = [_by_head(one.name, one.values) for one in found]
    return sheet(rows, Scale(*_range(rows), "added to the score"))


def plot_attention(
    weights: Mapping[str, Tensor] | Tensor,
    tokens: Sequence[str] | None = None,
    *,
    source: Sequence[str] | None = None,
    row: int = 0,
    heads: Sequence[int] | None = None,
) -> Picture:
    """Attention weights: the darker a cell, the more weight the query of its row gives the key of
    its column.

    weights: what `attention_weights` found, or a tensor ((batch,) (heads,) queries, keys). tokens:
    names of the tokens; with two stacks of the decoder's, and `source` of the encoder's. row: which
    sequence of the batch. heads: numbers to call the heads by, where they are not all. Negative
    weights, which some attentions have, are drawn in another colour.
    """
    named = weights if isinstance(weights, Mapping) else {"": weights}
    if not named:
        raise config_error(
            "weights",
            "must hold those of an attention at least",
            got="none",
            fix="See attention_weights.",
        )
    rows = [_of_layer(name, values, row, heads, tokens, source) for name, values in named.items()]
    low, high = _range(rows)
    label = "weight" if low < 0 else "weight, shaded by its square root"
    return sheet(rows, Scale(low, high, label, root=True))


def _range(rows: Sequence[Row]) -> tuple[float, float]:
    """The smallest and the largest value of all panels."""
    extremes = [panel.values.aminmax() for row in rows for panel in row.panels]
    return min(float(one.min) for one in extremes), max(float(one.max) for one in extremes)


# What is drawn.


def _masks(given: Any, heads: int) -> Iterator[tuple[str, Mask, int]]:
    """(title, mask, heads) of each."""
    if isinstance(given, Model):
        yield from _of_model(given)
    elif isinstance(given, Mask):
        yield "", given, heads
    else:
        node = _checked(MASKS, given)
        yield node["name"], MASKS.create(node), heads


def _of_model(model: Model) -> Iterator[tuple[str, Mask, int]]:
    for name in model.names:
        stack: Any = model.get_submodule(name)
        alike: dict[tuple[str, Mask, int], list[int]] = {}
        for depth, block in enumerate(stack.layers):
            for sub, index in block.group_of.items():
                look = stack.groups[index]
                alike.setdefault((sub, look.mask, look.heads), []).append(depth)
        for (sub, mask, heads), depths in alike.items():
            yield f"{name}.{ranges(depths)}.{sub}", mask, heads


def _mask(name: str, mask: Mask, length: int, heads: int, prefix: int) -> Row:
    seen = matrix(mask, length, heads, prefix)
    return _by_head(name, seen) if mask.per_head else Row(name, [Panel("", seen)])


def _by_head(name: str, values: Tensor) -> Row:
    return Row(name, [Panel(f"head {head}", one) for head, one in enumerate(values)])


class Bias(NamedTuple):
    name: str
    values: Tensor  # (heads, queries, keys)
    relative: bool  # whether the distance alone decides
    future: bool  # whether a query sees later keys


def _biases(given: Any, length: int, heads: int, future: bool) -> Iterator[Bias]:
    if isinstance(given, Model):
        found = list(_biases_of(given, length))
        if not found:
            raise config_error(
                "position",
                "none of the model's adds a bias to scores",
                fix=f"Those that do: {_biased()}.",
            )
        yield from found
        return
    if isinstance(given, Position):
        yield _bias("", given, length, heads, future)
        return
    node = _checked(POSITIONS, given)
    component = POSITIONS[node["name"]]
    if component.learned:
        raise config_error(
            "position",
            f"'{node['name']}' learns its bias",
            fix="Give a model with it, or its own, such as model.decoder.position['base'].",
        )
    sizes = {
        "dim": 8 * heads,
        "heads": heads,
        "head_dim": 8,
        "max_len": length,
        "layers": 1,
        "stack": "decoder",
    }
    yield _bias(node["name"], POSITIONS.create(node, **sizes), length, heads, future)


def _biased() -> str:
    """The names of the positions with a bias."""
    return ", ".join(name for name, component in POSITIONS.items() if "bias" in component.enters)


def _biases_of(model: Model, length: int) -> Iterator[Bias]:
    for name in model.names:
        stack: Any = model.get_submodule(name)
        seen: set[tuple[str, int]] = set()
        for look in stack.groups:
            if (
                "bias" in stack.position_enters[look.position]
                and (look.position, look.heads) not in seen
            ):
                seen.add((look.position, look.heads))
                where = name if look.position == "base" else f"{name} {look.position}"
                position = stack.position[look.position]
                yield _bias(
                    where, position, length, look.heads, look.cross or look.mask.sees_future
                )


@torch.no_grad()
def _bias(name: str, position: Position, length: int, heads: int, future: bool) -> Bias:
    kind = POSITIONS.name_of(type(position)) or type(position).__name__
    if "bias" not in position.enters:
        raise config_error(
            "position", f"'{kind}' adds no bias to scores", fix=f"Those that do: {_biased()}."
        )
    held = next((x for x in (*position.parameters(), *position.buffers())), torch.empty(0))
    slot = torch.arange(length, device=held.device)[None]
    tokens = Tokens(slot=slot, position=slot)
    head = torch.arange(heads, device=held.device).view(1, -1, 1, 1)
    bias = position.begin(tokens, tokens).bias(tokens.as_query(), tokens.as_key(), head)
    values = bias.expand(1, heads, length, length)[0].float().cpu()
    return Bias(
        name if name == kind else f"{name} {kind}".strip(),
        values,
        "shift" not in position.breaks,
        future,
    )


def _of_layer(
    name: str,
    weights: Tensor,
    row: int,
    heads: Any,
    tokens: Sequence[str] | None,
    source: Sequence[str] | None,
) -> Row:
    """A panel for each head."""
    if weights.ndim == 4:
        if not 0 <= row < len(weights):
            raise config_error(
                "row", f"must be one of the {len(weights)} sequences, from 0 on", got=row
            )
        weights = weights[row]
    weights = weights.detach().float().cpu().view(-1, *weights.shape[-2:])
    numbers = range(len(weights)) if heads is None else heads
    queries, keys = tokens or (), tokens or ()
    if source is not None and name.startswith("encoder."):
        queries = keys = source
    elif source is not None and name.rpartition(".")[2].startswith("cross"):
        keys = source
    learned = weights.shape[-1] - len(keys)  # keys in front of those of tokens
    if keys and learned > 0:
        keys = [*(f"learned {i}" for i in range(learned)), *keys]
    panels = [
        Panel(f"head {number}", values, queries, keys)
        for number, values in zip(numbers, weights, strict=True)
    ]
    return Row(name, panels)


def _checked(registry: Registry, given: Any) -> dict[str, Any]:
    """A component's node with its defaults. Raises ConfigError with its faults."""
    node = registry.complete(given)
    if faults := list(registry.faults(node, registry.kind, Context())):
        raise ConfigError(faults)
    return node


def _sized(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise config_error(name, "must be at least 1", got=size)


# How it is drawn.


def _lines(found: Sequence[Bias]) -> Picture:
    """Biases over distances, a panel for each position."""

    def draw(figure: Any) -> None:
        every = figure.subplots(len(found), 1, squeeze=False)[:, 0]
        for axes, one in zip(every, found, strict=True):
            _over_distance(axes, one)
        every[-1].set_xlabel("key - query, tokens")

    most = max(len(one.values) for one in found)
    return Picture(WIDTH, (3.1 + 0.09 * most) * len(found), draw)


def _over_distance(axes: Any, one: Bias) -> None:
    length = one.values.shape[1]
    at = list(range(1 - length, length if one.future else 1))
    for head, values in enumerate(one.values):
        line = [*values[-1].tolist(), *(values[0, 1:].tolist() if one.future else ())]
        axes.plot(at, line, label=f"head {head}", **line_style(head), **markers(head, len(at)))
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_title(one.name)
    axes.set_ylabel("added to the score")
    whole(axes.xaxis)
    columns = math.ceil(len(one.values) / 10)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, ncols=columns)
