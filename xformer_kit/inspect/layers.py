"""Layers by their numbers: equal ones are grouped, and shown as ranges."""

from collections.abc import Iterable
from typing import TypeVar

Layer = TypeVar("Layer")
Item = TypeVar("Item")


def group_equal(items: Iterable[tuple[Layer, Item]]) -> dict[Item, list[Layer]]:
    """Returns {item: its layers} of (layer, item), in the order of first appearance."""
    groups: dict[Item, list[Layer]] = {}
    for layer, item in items:
        groups.setdefault(item, []).append(layer)
    return groups


def format_ranges(depths: list[int]) -> str:
    """[0, 1, 2, 4] -> "0-2, 4"."""
    ranges: list[list[int]] = []
    for depth in depths:
        if ranges and depth == ranges[-1][1] + 1:
            ranges[-1][1] = depth
        else:
            ranges.append([depth, depth])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
