"""Draws how a model is made, and where each kind of component enters it, into
static/composition.png: python -m docs.composition_picture
"""

from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "static" / "composition.png"
WIDTH, HEIGHT = 10.4, 5.6  # inches, and units of the drawing
INK, LINE = "#1a1a1a", "#8a8a8a"
KIND, PLAIN, PANEL = "#d6e6f4", "#ffffff", "#f6f6f6"  # colours of boxes and of their panel
# In each panel from below: (kind, or "" for a fixed part; text). A panel begins at a left edge.
PANELS = {
    0.15: "model",
    3.65: "block of a stack",
    7.15: "attention",
}
COLUMNS = {
    0.15: [
        ("tokenizer", "text to ids"),
        ("", "embedding of ids"),
        ("position", "embed: added to it"),
        ("", "stack: blocks (one stack or two)"),
        ("extra", "before and after a block"),
        ("norm", "final norm"),
        ("", "head: logits"),
        ("task", "loss of a batch"),
    ],
    3.65: [
        ("", "residual stream from below"),
        ("placement", "norm before (pre)"),
        ("attn", "self-attention"),
        ("extra", "around a sublayer"),
        ("placement", "sum, norm after (post)"),
        ("attn", "cross-attention, the same steps"),
        ("ffn", "the same steps"),
        ("", "residual stream to the next block"),
    ],
    7.15: [
        ("", "q, k, v: projections"),
        ("attn.qk_norm", "norm of q and k"),
        ("position", "rotate: q and k"),
        ("kernel", "q k^T * scale, up to times v"),
        ("position", "bias added, or its scores"),
        ("mask", "keys that are visible"),
        ("attn.score", "weights, times v"),
        ("attn.gate", "and output projection"),
    ],
}
NOTE = "blue: a kind of component, chosen by name"
PANEL_WIDTH, BOX_WIDTH, BOX_HEIGHT = 3.1, 2.7, 0.42


def draw(figure: Any) -> None:
    """Draws the picture into a figure of WIDTH x HEIGHT inches."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.axis("off")
    axes.text(WIDTH - 0.15, 0.12, NOTE, ha="right", fontsize=8.5, color=INK)
    for left, title in PANELS.items():
        _box(axes, (left, 0.4), (PANEL_WIDTH, HEIGHT - 0.5), PANEL)
        axes.text(left + 0.2, HEIGHT - 0.38, title, weight="bold", fontsize=10.5, color=INK)
        boxes = COLUMNS[left]
        step = (HEIGHT - 1.2 - BOX_HEIGHT) / (len(boxes) - 1)
        x, middle = left + (PANEL_WIDTH - BOX_WIDTH) / 2, left + PANEL_WIDTH / 2
        for i, (kind, text) in enumerate(boxes):
            y = 0.6 + i * step
            _box(axes, (x, y), (BOX_WIDTH, BOX_HEIGHT), KIND if kind else PLAIN)
            if i:
                arrow = {"arrowstyle": "->", "color": LINE, "shrinkA": 0, "shrinkB": 0}
                start = y - step + BOX_HEIGHT
                axes.annotate("", (middle, y), (middle, start), arrowprops=arrow)
            label = rf"$\bf{{{kind.replace('_', chr(92) + '_')}}}$  {text}" if kind else text
            centre = y + BOX_HEIGHT / 2
            axes.text(middle, centre, label, ha="center", va="center", fontsize=8.5, color=INK)


def _box(axes: Any, corner: tuple[float, float], size: tuple[float, float], colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.06"
    axes.add_patch(
        FancyBboxPatch(corner, *size, boxstyle=style, facecolor=colour, edgecolor=LINE, lw=0.7)
    )


def save(file: Path = FILE) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=120)
    draw(figure)
    figure.savefig(file, metadata={"Software": None})


if __name__ == "__main__":
    save()
