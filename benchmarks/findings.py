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
from xformer_kit.study.report import plots
from xformer_kit.study.report.content import content

NAMES = sorted(
    path.stem for path in (Path(__file__).parents[1] / "conf" / "study" / "findings").glob("*.yaml")
)


def finding(folder: Path) -> dict[str, Any] | None:
    """Returns the claim and its outcome; None for an unfinished study."""
    found = stop.apply_stopping_rule(results(folder))
    said = content(found)
    if said.partial or said.claim is None:
        return None
    runs = json.loads((folder / "plan.json").read_text())["runs"]
    return {
        "question": said.question,
        "paper": found.claim.get("paper") or "",
        "outcome": said.claim.outcome,
        "claim": said.claim_sentence,
        "answer": said.sentence,
        "variants": said.sentences,
        "runs": len(runs),
        "training_seconds": round(sum(_seconds(folder, run["key"]) for run in runs)),
        "command": f"python train.py study=findings/{folder.name}",
    }


def draw(folder: Path, file: Path) -> None:
    """Draws the forest plot of a study."""
    said = content(stop.apply_stopping_rule(results(folder)))
    file.parent.mkdir(exist_ok=True)
    for figure in plots.forest(said):
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
