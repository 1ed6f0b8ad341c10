"""The loss over the learning rate at three widths, with and without muP, from the runs of the study
findings/mup_transfer, drawn into docs/static/mup_transfer.png.

    python -m benchmarks.mup_transfer [--runs outputs/runs] [--save]

It trains none itself. Without --save it draws the saved figures.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.measure import RESULTS, machine, save
from xformer_kit.config import read_config

PAGE = Path(__file__).parents[1] / "docs" / "static" / "mup_transfer.png"
TITLES = {"standard": "standard parametrization", "mup": "muP, base_dim=32"}


def runs(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields parametrization, width, rate, seed and validation loss of each finished run."""
    for file in sorted(folder.glob("*/summary.json")):
        config = read_config(file.parent)
        yield {
            "parametrization": config["model"]["parametrization"],
            "dim": config["model"]["dim"],
            "lr": config["optim"]["lr"],
            "seed": config["seed"],
            "loss": round(json.loads(file.read_text())["val/loss"], 4),
        }


def curve(figures: list[dict[str, Any]], parametrization: str, dim: int) -> dict[float, float]:
    """Returns {rate: mean of the loss over seeds}."""
    found: dict[float, list[float]] = {}
    for run in figures:
        if (run["parametrization"], run["dim"]) == (parametrization, dim):
            found.setdefault(run["lr"], []).append(run["loss"])
    return {lr: mean(losses) for lr, losses in sorted(found.items())}


def best(figures: list[dict[str, Any]], parametrization: str, dim: int) -> float:
    """Returns the rate with the least mean loss."""
    losses = curve(figures, parametrization, dim)
    return min(losses, key=losses.__getitem__)


def draw(figures: list[dict[str, Any]], file: Path) -> None:
    """Draws a panel for each parametrization, with a line for each width and a star at its best
    rate.
    """
    from xformer_kit.inspect.picture import Picture
    from xformer_kit.inspect.style import line_style

    def panels(figure: Any) -> None:
        both = figure.subplots(1, 2, sharex=True, sharey=True)
        rates = sorted({run["lr"] for run in figures})
        for axes, (name, title) in zip(both, TITLES.items(), strict=True):
            for i, dim in enumerate(sorted({run["dim"] for run in figures})):
                losses, style = curve(figures, name, dim), line_style(i)
                axes.plot([*losses], [*losses.values()], label=f"model.dim={dim}", **style)
                at = best(figures, name, dim)
                star = {"marker": "*", "markersize": 15, "color": style["color"]}
                axes.plot(at, losses[at], linestyle="", zorder=4, **star)
            axes.set_xscale("log", base=2)
            axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
            axes.minorticks_off()
            axes.set_title(title, loc="left")
            axes.set_xlabel("peak learning rate: optim.lr")
        both[0].set_ylabel("validation loss (nats per byte)")
        lines, labels = both[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside upper left", ncols=3)

    Picture(8.4, 3.8, panels).save(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mup_transfer", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=Path, default=Path("outputs/runs"))
    parser.add_argument("--save", action="store_true", help="keep the figures and the picture")
    given = parser.parse_args()
    kept = RESULTS / "mup_transfer.json"
    figures = [*runs(given.runs)] if given.save else json.loads(kept.read_text())["figures"]
    for name in TITLES:
        dims = sorted({run["dim"] for run in figures})
        rates = [best(figures, name, dim) for dim in dims]
        for dim, rate in zip(dims, rates, strict=True):
            moved = math.log2(rate / rates[0])
            loss = curve(figures, name, dim)[rate]
            print(f"{name} {dim}: best rate {rate:g} ({moved:+.0f} grid steps), loss {loss:.3f}")
    if given.save:
        print(save("mup_transfer", machine(), figures))
    draw(figures, PAGE)
    print(PAGE)


if __name__ == "__main__":
    main()
