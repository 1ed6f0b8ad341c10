"""The probe `recall` with softmax, gated delta and linear attention, drawn into docs/recall.png.

    python -m benchmarks.recall [--attn multi_head gated_delta linear] [--runs
    outputs/recall_by_attention] [--save]

Multi-query associative recall (Arora et al., 2023, arXiv:2312.04927, figure 2): 4 keys with their
values, each queried later among 64 tokens. Every run is `python train.py experiment=recall
attn=NAME`; a finished run is not repeated.
"""

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import machine, save

PAGE = Path(__file__).parents[1] / "docs" / "recall.png"
LINES = {"multi_head": "-", "gated_delta": "--", "linear": ":"}  # legible in black and white


def train(attn: str, directory: Path, more: list[str]) -> dict:
    """Returns the summary of a run, which is trained first if it does not exist."""
    if not (directory / "summary.json").exists():
        words = ["experiment=recall", f"attn={attn}", "trainer.val_every=100", "logger=none", *more]
        subprocess.run(
            [sys.executable, "train.py", *words, f"hydra.run.dir={directory}"], check=True
        )
    return json.loads((directory / "summary.json").read_text())


def curve(directory: Path) -> list[tuple[int, float]]:
    """Returns steps and the accuracy on the validation set."""
    with (directory / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [
        (int(row["step"]), float(row["val/accuracy"])) for row in rows if row.get("val/accuracy")
    ]


def draw(curves: dict[str, list[tuple[int, float]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    for attn, points in curves.items():
        steps, shares = zip(*points, strict=True)
        (line,) = axes.plot(
            steps, [100 * share for share in shares], LINES.get(attn, "-."), lw=2, label=attn
        )
        axes.annotate(
            attn,
            (steps[-1], 100 * shares[-1]),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=line.get_color(),
        )
    axes.set(
        xlabel="optimizer steps",
        ylabel="answers right, %",
        ylim=(0, 103),
        title="Associative recall: 4 pairs in 64 tokens",
    )
    axes.margins(x=0.02)
    axes.set_xlim(right=axes.get_xlim()[1] * 1.16)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attn", nargs="+", default=list(LINES))
    parser.add_argument("--runs", type=Path, default=Path("outputs/recall_by_attention"))
    parser.add_argument("--more", nargs="*", default=[], help="further overrides")
    parser.add_argument("--save", action="store_true", help=f"write {PAGE.name} and the figures")
    args = parser.parse_args()
    summaries = {attn: train(attn, args.runs / attn, args.more) for attn in args.attn}
    found = {
        attn: {"test accuracy": said["test/accuracy"], "parameters": said["params"]}
        for attn, said in summaries.items()
    }
    for attn, row in found.items():
        print(
            f"{attn:12} {row['test accuracy']:7.2%} of the test answers, {row['parameters']:,}"
            " parameters"
        )
    if args.save:
        draw({attn: curve(args.runs / attn) for attn in args.attn}, PAGE)
        save("recall", machine(), found)


if __name__ == "__main__":
    main()
