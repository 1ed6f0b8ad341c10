"""Saves the outcomes of studies of published claims, which `python train.py study=findings/NAME`
trains.

    python -m benchmarks.findings [--studies outputs/studies] [--save]

Unfinished studies are left out. Saved outcomes of other studies are kept, each with its time and
machine. With --save each has a page in docs/findings, with a forest plot if its study is at hand.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.finding_pages import PAGES, page
from benchmarks.measure import RESULTS, machine, save
from tasks.study.collect import results
from xformer_kit.study import stop
from xformer_kit.study.report import law_plots, plots
from xformer_kit.study.report.content import Content, content
from xformer_kit.study.report.forecast import forecast_sentences

NAMES = sorted(
    path.stem for path in (Path(__file__).parents[1] / "conf" / "study" / "findings").glob("*.yaml")
)


def finding(folder: Path) -> dict[str, Any] | None:
    """Returns the claim, or the forecast of a ladder, and its outcome; None for an unfinished
    study.
    """
    found = stop.apply_stopping_rule(results(folder))
    said = content(found)
    if said.partial or not (said.claim or said.forecast):
        return None
    runs = json.loads((folder / "plan.json").read_text())["runs"]
    return {
        "question": said.question,
        "paper": found.claim.get("paper") or "",
        "outcome": said.claim.outcome if said.claim else _error(said),
        "claim": said.claim_sentence or _forecast(said),
        "answer": said.sentence,
        "variants": said.sentences,
        "runs": len(runs),
        "training_seconds": round(sum(_seconds(folder, run["key"]) for run in runs)),
        "command": f"python train.py study=findings/{folder.name}",
    }


def _forecast(said: Content) -> str:
    """Returns the forecast of every run of the largest size and what was measured."""
    assert said.forecast
    return " ".join(forecast_sentences(said.forecast, said.metric))


def _error(said: Content) -> str:
    """Returns the error of the forecast of the largest run in words."""
    assert said.forecast
    errors = [row.error for row in said.forecast.rows if row.error is not None]
    return f"foretold with an error of {100 * abs(errors[-1]):.2g} %" if errors else "not foretold"


def draw(folder: Path, file: Path) -> None:
    """Draws the forest plot of a study, or the laws of a ladder."""
    said = content(stop.apply_stopping_rule(results(folder)))
    file.parent.mkdir(exist_ok=True)
    for figure in [*law_plots.figures(said), *plots.forest(said)][:1]:
        with figure.drawn(wide=True) as canvas:
            canvas.savefig(file, format="svg", metadata={"Date": None})


def _seconds(folder: Path, key: str) -> float:
    """Returns the training time in the summary of a run; a run that diverged has none."""
    file = folder.parents[1] / "runs" / key / "summary.json"
    return json.loads(file.read_text())["seconds"] if file.exists() else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.findings", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--studies", type=Path, default=Path("outputs/studies"))
    parser.add_argument(
        "--save", action="store_true", help="keep what was found in benchmarks/results"
    )
    given = parser.parse_args()
    kept = RESULTS / "findings.json"
    figures = json.loads(kept.read_text())["figures"] if kept.exists() else {}
    about = machine()
    of = {key: about[key] for key in ("time", "cpu", "cores", "versions")}
    for name in NAMES:
        folder = given.studies / name
        found = finding(folder) if (folder / "plan.json").exists() else None
        if found:
            figures[name] = found | of
            print(f"{name}: {found['claim']}")
            if given.save:
                draw(folder, PAGES / f"{name}.svg")
    if given.save:
        print(save("findings", about, figures))
        for name, figure in figures.items():
            (PAGES / f"{name}.md").write_text(page(name, figure), encoding="utf-8")


if __name__ == "__main__":
    main()
