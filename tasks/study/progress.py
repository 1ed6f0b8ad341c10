"""The progress of a study: status of all runs, as plain data."""

import math
from collections import Counter
from pathlib import Path
from typing import get_args

from tasks.study import state
from tasks.study.collect import results
from xformer_kit.study.command import from_here
from xformer_kit.study.results import Status, title
from xformer_kit.study.stop import apply_stopping_rule

STATUSES = get_args(Status)


def progress(folder: Path) -> dict:
    """Returns the progress of a study: `variants` with a count for each status, `runs` with their
    details, and the commands that continue (`go_on`) and that repeat failed runs (`retry`), None if
    there is nothing to do. Raises ConfigError if the directory is no study.
    """
    found = apply_stopping_rule(results(folder))
    study, search = found.study, found.search
    names = [title(variant) for variant in found.variants]
    runs = [
        {
            "variant": names[one.variant],
            "seed": one.seed,
            "status": one.status,
            "step": one.step,
            "steps": one.facts.get("steps")
            or math.ceil(found.variants[one.variant]["cost"]["steps"]),
            "why": one.why,
            "directory": one.directory,
        }
        for one in found.outcomes
    ]
    by_variant = {name: [run for run in runs if run["variant"] == name] for name in names}
    statuses = tuple(one for one in STATUSES if study.get("stop") or one != "left out")
    unfinished = any(run["status"] in ("running", "stopped", "open") for run in runs)
    # Runs with a damaged metrics.csv are not repeated.
    recorded = (state.of(Path(one.directory)) for one in found.outcomes)
    failed = any(one.status in ("failed", "diverged") for one in recorded)
    proposed = search is None or search["end"] or len(search["points"]) >= search["trials"]
    return {
        "study": study["name"],
        "question": study["question"],
        "folder": str(folder),
        "counts": _counts(runs, statuses),
        "variants": [
            {"name": name, "runs": len(variant_runs)} | _counts(variant_runs, statuses)
            for name, variant_runs in by_variant.items()
        ],
        "runs": runs,
        "go_on": from_here(folder, found.command) if unfinished or not proposed else None,
        "retry": from_here(folder, found.command, "study.retry=true") if failed else None,
    }


def _counts(runs: list[dict], statuses: tuple[str, ...]) -> dict[str, int]:
    """Returns the number of runs of each status."""
    return dict.fromkeys(statuses, 0) | Counter(run["status"] for run in runs)
