"""A picture of a component, where one says more than a formula: who sees whom, what a distance is
worth, how a curve runs.

Each is computed by the component itself, with the sizes that its caption names. A function draws
one component into a figure and returns the caption; `drawn` says which components have one.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docs.curves import activations, norm, scaling, schedule, score
from docs.kinds import KINDS
from docs.models import init, placement, position
from xformer_kit.attention.score import Score
from xformer_kit.inspect.components import written
from xformer_kit.laws.checking import faces
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import REQUIRED

SIZE, PREFIX, HEADS = 24, 6, 6  # tokens of a mask, those of a prefix, heads
DPI = 110  # pixels to an inch
SIZES = {"window": 4, "stride": 6, "summary": 1, "block": 3, "count": 2, "chunk": 6, "shape": [6]}
STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}
ACTIVATED = [
    ("ffn", "mlp"),
    ("ffn", "glu"),
    ("ffn.expert", "mlp"),
    ("ffn.expert", "glu"),
]  # share a picture
Draw = Callable[[Any, str], str]


def pictures(out: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Draw every component that has a picture: (kind, name) -> file under `out`, caption."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = {}
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    for kind, name, draw in drawn():
        figure = Figure(figsize=(4.6, 2.7), dpi=DPI)
        path = out / "pictures" / f"{kind}-{name}.png"
        with rc_context(STYLE):
            figure.subplots_adjust(
                left=0.13, right=0.97, bottom=0.17, top=0.95
            )  # to find a layout takes long
            caption = draw(figure, name)
            figure.savefig(path, metadata={"Software": None})
        found[kind, name] = str(path.relative_to(out)), caption
    return found | dict.fromkeys(ACTIVATED, found[ACTIVATED[0]])


def drawn() -> Iterator[tuple[str, str, Draw]]:
    """What there is to draw. No picture: a position that depends on content, or is a table that is
    learned; a score that depends on more than the row.
    """
    for kind, draw in (
        ("mask", mask),
        ("schedule", schedule),
        ("norm", norm),
        ("init", init),
        ("placement", placement),
    ):
        yield from ((kind, name, draw) for name in KINDS[kind])
    for name, component in KINDS["position"].items():
        if set(component.enters) & {"rotate", "bias"} or name == "sinusoidal":
            yield "position", name, position
    for name, component in KINDS["attn.score"].items():
        if not component.across and component.of is Score.of:
            yield "attn.score", name, score
    for name in KINDS["position.scaling"]:
        if name != "none" and REQUIRED not in KINDS["position.scaling"].defaults(name).values():
            yield "position.scaling", name, scaling
    yield "ffn", ACTIVATED[0][1], activations


def mask(figure: Any, name: str) -> str:
    registry = KINDS["mask"]
    node = faces("mask", name)[0]
    node |= {key: size for key, size in SIZES.items() if key in node}
    made, slot = registry.create(node), torch.arange(SIZE)[None]
    tokens = Tokens(slot=slot, position=slot, prefix=slot < PREFIX)
    seen = made.allows(tokens.as_query(), tokens.as_key(), torch.arange(HEADS).view(1, -1, 1, 1))
    seen = seen.expand(1, HEADS, SIZE, SIZE)[0]
    panels = [seen[0], seen[-1]] if made.per_head else [seen[0]]
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        cells(axes, panel)
    heads = ", in the first head and in the last" if len(panels) > 1 else ""
    told = [
        f"{key}={written(value)}"
        for key, value in node.items()
        if value != registry.defaults(name)[key]
    ]
    told += [f"the first {PREFIX} are a prefix"] if made.sees_prefix else []
    return f"Which of {SIZE} keys each query sees{heads}" + (f"; {', '.join(told)}" if told else "")


def cells(axes: Any, seen: Tensor) -> None:
    axes.imshow(seen.tolist(), cmap="Blues", vmin=0, vmax=1.4, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
