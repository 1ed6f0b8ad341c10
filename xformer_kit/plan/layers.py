"""The layers of a stack: the variant of each, and the block that it calls."""

from typing import Any

from xformer_kit.plan.differences import Node


def shared_by(layers: int, unique: int, sharing: str) -> tuple[int, ...]:
    """The index of the block of each layer, 0 to unique - 1 (Takase and Kiyono, 2021,
    arXiv:2104.06022, section 2).

    sequence: consecutive layers share a block, AABB, as in ALBERT's groups; cycle: the blocks are
    repeated, ABAB, as in the Universal Transformer; cycle_rev: the last time in reverse, ABABBA.
    """
    if sharing == "sequence":
        return tuple(i * unique // layers for i in range(layers))
    index = [i % unique for i in range(layers)]
    if sharing == "cycle_rev" and layers > unique:
        last = layers - (layers % unique or unique)
        index[last:] = [unique - 1 - block for block in index[last:]]
    return tuple(index)


def loop_range(train_loops: Any, loops: int) -> tuple[int, int]:
    """The least and the most loops of a forward pass in training, from model.train_loops."""
    if train_loops is None:
        return loops, loops
    low, high = (train_loops, train_loops) if isinstance(train_loops, int) else train_loops
    return low, high


def layer_order(stack: Node, layers: int) -> list[str]:
    """The name of each layer's variant, from the options of a stack: the pattern is repeated up to
    `layers`; `first` and `last` replace its ends.
    """
    pattern = stack.get("pattern") or ["base"]
    order = [pattern[i % len(pattern)] for i in range(layers)]
    first, last = stack.get("first") or [], stack.get("last") or []
    order[: len(first)] = first
    if last:
        order[-len(last) :] = last
    return order[:layers]
