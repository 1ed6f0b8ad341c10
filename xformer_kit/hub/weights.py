"""Which tensor of a published file is which of ours, in both directions.

A `Weight` names tensors by templates: {i} is the number of a layer, {e} that of an expert, and {h}
that of a head,

    Weight("model.layers.{i}.self_attn.q_proj.weight", "decoder.{i}.attn.q.weight")

A family has a tuple of them. One whose tensors of ours a model does not have, such as biases, is
not of that model, nor is one whose tensors of ours an earlier one has.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from xformer_kit.hub.layouts import SAME, Heads, Layout
from xformer_kit.plan import ModelPlan

Shapes = Mapping[str, Sequence[int]]
EXPERT, HEAD = "{e}", "{h}"


@dataclass(frozen=True)
class Weight:
    """Tensors of a file and ours that hold the same numbers.

    theirs, ours: one template, or several. layout: how they are laid out in the file. without: a
    template of a tensor of ours; models that have it do not have these.
    """

    theirs: str | tuple[str, ...]
    ours: str | tuple[str, ...]
    layout: Layout = SAME
    without: str | None = None


class Match(NamedTuple):
    """A Weight in a model: the names in a file and ours, and the heads of their attention."""

    theirs: list[str]
    ours: list[str]
    layout: Layout
    heads: Heads


def linear(theirs: str, ours: str, layout: Layout = SAME) -> tuple[Weight, Weight]:
    """The weight and the bias of a module of one map, or of a norm."""
    weight, bias = (Weight(f"{theirs}.{n}", f"{ours}.{n}", layout) for n in ("weight", "bias"))
    return weight, bias


def fused(theirs: str, ours: Sequence[str], layout: Layout) -> tuple[Weight, Weight]:
    """The weights and the biases of several of our maps that the file has in one module."""
    weight, bias = (
        Weight(f"{theirs}.{n}", tuple(f"{one}.{n}" for one in ours), layout)
        for n in ("weight", "bias")
    )
    return weight, bias


def matches(weights: Sequence[Weight], shapes: Shapes, plan: ModelPlan) -> Iterator[Match]:
    """Yields each Weight for each layer of a model. shapes: of its tensors, by our names."""
    heads, taken = _heads(plan), set[str]()
    for weight in weights:
        ours, theirs = (
            [one] if isinstance(one, str) else list(one) for one in (weight.ours, weight.theirs)
        )
        for layer in _layers(ours[0], shapes):
            of_layer = [one.replace("{i}", str(layer)) for one in ours]
            found = [name for one in of_layer for name in _of_heads(one, shapes)]
            if weight.without is not None and weight.without.format(i=layer) in shapes:
                continue
            if not taken.isdisjoint(found) or not all(name in shapes for name in found):
                continue
            taken.update(found)
            experts, count = range(shapes[found[0]][0]), range(len(found))
            names = [
                one.format(i=layer, e=e, h=h)
                for one in theirs
                for e in (experts if EXPERT in one else (0,))
                for h in (count if HEAD in one else (0,))
            ]
            of = heads.get(found[0].split(".attn.")[0].split(".cross.")[0], NO_HEADS)
            yield Match(names, found, weight.layout, of)


NO_HEADS = Heads(1, 1, 1, 1)


def _layers(template: str, shapes: Shapes) -> list[int | None]:
    """The layers that have a tensor of this template; [None] for a template without a layer."""
    if "{i}" not in template:
        return [None]
    before, after = (re.escape(part) for part in template.replace(HEAD, "0").split("{i}"))
    found = (re.fullmatch(rf"{before}(\d+){after}", name) for name in shapes)
    return [int(match[1]) for match in found if match]


def _of_heads(name: str, shapes: Shapes) -> list[str]:
    """The tensors of all heads, of a template with {h}; else the one of this name."""
    if HEAD not in name:
        return [name]
    names = (name.replace(HEAD, str(head)) for head in itertools.count())
    return list(itertools.takewhile(lambda one: one in shapes, names))


def _heads(plan: ModelPlan) -> dict[str, Heads]:
    """Block, such as decoder.3 -> the heads of its attentions."""
    found = {}
    for stack in plan.stacks:
        for at, (_, block) in enumerate(stack.own_blocks):
            for sub in block.sublayers:
                if sub.kind == "attn":
                    traits: Any = sub.context.attn
                    found[f"{stack.name}.{at}"] = Heads(
                        traits.heads, traits.kv_heads, traits.head_dim, traits.v_head_dim
                    )
    return found
