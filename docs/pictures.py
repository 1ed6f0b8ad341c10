"""Pictures of components: which keys a mask allows, the effect of a distance, the curve of a
function.

The component itself computes the values, with the sizes in the caption. A function draws one
component into a figure and returns the caption; `drawn` yields the components that have a picture.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docs.function_pictures import activations, norm, scaling, schedule, score
from docs.kinds import KINDS
from docs.model_pictures import init, placement, position
from xformer_kit.attention.score import Score
from xformer_kit.inspect.components import as_yaml
from xformer_kit.laws.trials import option_variants
from xformer_kit.registry import REQUIRED
from xformer_kit.tensors.tokens import Tokens

SIZE, PREFIX, HEADS = 24, 6, 6  # tokens of a mask, those of a prefix, heads
DPI = 110  # pixels to an inch
OPTIONS = {"window": 4, "stride": 6, "summary": 1, "block": 3, "count": 2, "chunk": 6, "shape": [6]}
STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}
# Components that share the picture of the activations.
ACTIVATED = [(kind, name) for kind in ("ffn", "ffn.expert") for name in ("mlp", "glu")]
Draw = Callable[[Any, str], str]


def pictures(out: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Draws the pictures. Returns {(kind, name): (file relative to `out`, caption)}."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = {}
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    for kind, name, draw in drawn():
        figure = Figure(figsize=(4.6, 2.7), dpi=DPI)
        path = out / "pictures" / f"{kind}-{name}.png"
        with rc_context(STYLE):
            # Fixed margins: computing a layout takes long.
            figure.subplots_adjust(left=0.13, right=0.97, bottom=0.17, top=0.95)
            caption = draw(figure, name)
            figure.savefig(path, metadata={"Software": None})
        found[kind, name] = str(path.relative_to(out)), caption
    return found | dict.fromkeys(ACTIVATED, found[ACTIVATED[0]])


def drawn() -> Iterator[tuple[str, str, Draw]]:
    """Yields (kind, name, drawing function) of the components that have a picture: not positions
    that depend on content or are a learned table, and not scores that depend on several rows.
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
        if not component.cross_layer and component.of is Score.of:
            yield "attn.score", name, score
    for name in KINDS["position.scaling"]:
        if name != "none" and REQUIRED not in KINDS["position.scaling"].defaults(name).values():
            yield "position.scaling", name, scaling
    yield "ffn", ACTIVATED[0][1], activations


def mask(figure: Any, name: str) -> str:
    """Draws the keys that each query attends to."""
    registry = KINDS["mask"]
    node = option_variants("mask", name)[0]
    node |= {key: size for key, size in OPTIONS.items() if key in node}
    module, slot = registry.create(node), torch.arange(SIZE)[None]
    tokens = Tokens(slot=slot, position=slot, prefix=slot < PREFIX)
    allowed = module.allows(
        tokens.as_query(), tokens.as_key(), torch.arange(HEADS).view(1, -1, 1, 1)
    )
    allowed = allowed.expand(1, HEADS, SIZE, SIZE)[0]
    panels = [allowed[0], allowed[-1]] if module.per_head else [allowed[0]]
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        cells(axes, panel)
    heads = ", in the first and the last head" if len(panels) > 1 else ""
    settings = [
        f"{key}={as_yaml(value)}"
        for key, value in node.items()
        if value != registry.defaults(name)[key]
    ]
    settings += [f"the first {PREFIX} are a prefix"] if module.sees_prefix else []
    return "; ".join([f"Keys that each of {SIZE} queries attends to{heads}", *settings])


def cells(axes: Any, allowed: Tensor) -> None:
    """Draws a boolean matrix (queries, keys)."""
    axes.imshow(allowed.tolist(), cmap="Blues", vmin=0, vmax=1.4, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
