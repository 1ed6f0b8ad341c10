"""Draws the learning rate over a run with each schedule into static/schedules.png:
python -m docs.schedules_picture
"""

from pathlib import Path
from typing import Any

from docs.pictures import STYLE
from xformer_kit.optim import SCHEDULES

FILE = Path(__file__).parent / "static" / "schedules.png"
STEPS, WARMUP = 400, 0.05
COLOURS = "#1a1a1a", "#0072b2", "#d55e00", "#009e73"
# Schedule -> the options of all its curves, which are in the title, and those of each curve.
CURVES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "constant": ({}, [{}]),
    "linear": ({}, [{}, {"min": 0.2}]),
    "cosine": ({}, [{}, {"restarts": 1}]),
    "polynomial": ({}, [{}, {"power": 0.5}]),
    "wsd": (
        {"decay": 0.4, "min": 0.01},
        [{}, {"shape": "sqrt"}, {"shape": "cosine"}, {"shape": "exponential"}],
    ),
    "inverse_sqrt": ({}, [{}, {"min": 0.4}]),
    "one_cycle": ({"warmup": 0.3}, [{}, {"first": 0.3}]),
}
LOWER_LEGENDS = "cosine", "wsd"  # where their curves leave room
COLUMNS = 4


def draw(figure: Any) -> None:
    """Draws one panel per schedule."""
    rows = -(-len(CURVES) // COLUMNS)
    figure.subplots_adjust(left=0.06, right=0.99, bottom=0.1, top=0.94, wspace=0.14, hspace=0.34)
    panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True).flatten()
    for axes in panels[len(CURVES) :]:
        axes.set_axis_off()
    for axes, (name, (common, curves)) in zip(panels, CURVES.items(), strict=False):
        for options, colour in zip(curves, COLOURS, strict=False):
            node = {"name": name, "warmup": WARMUP} | common | options
            schedule = SCHEDULES.create(node, max_steps=STEPS)
            label = _words(options) or "default"
            shares = [step / (STEPS - 1) for step in range(STEPS)]
            factors = [schedule(step) for step in range(STEPS)]
            axes.plot(shares, factors, color=colour, linewidth=1.2, label=label)
        axes.set_title(f"schedule={name} {_words(common)}", fontsize=8.5, loc="left")
        axes.set(xlim=(0, 1), ylim=(0, 1.05), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        if len(curves) > 1:
            place: Any = {"loc": "upper right"}
            if name in LOWER_LEGENDS:
                place = {"loc": "lower left", "bbox_to_anchor": (0.05, 0)}
            axes.legend(frameon=False, fontsize=7.5, handlelength=1, borderaxespad=0.2, **place)
    for axes in panels[len(CURVES) - COLUMNS : len(CURVES)]:
        axes.set_xlabel("share of the run")
        axes.tick_params(labelbottom=True)
    for axes in panels[::COLUMNS]:
        axes.set_ylabel("factor of optim.lr")


def _words(options: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in options.items())


def save(file: Path = FILE) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(10.4, 4.6), dpi=120)
        draw(figure)
        figure.savefig(file, metadata={"Software": None})


if __name__ == "__main__":
    save()
