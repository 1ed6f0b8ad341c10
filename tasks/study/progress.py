"""The progress of a study: status of all runs, as plain data."""

import math
from collections import Counter
from pathlib import Path
from typing import get_args

from tasks.study import state, stopping
from tasks.study.collect import state_and_curves
from tasks.study.saved_plan import read_plan
from xformer_kit.study.command import from_here
from xformer_kit.study.results import Status, title

STATUSES = tuple(status for status in get_args(Status) if status != "left out")


def progress(folder: Path) -> dict:
    """Returns the progress of a study: `variants` with a count for each status, `runs` with their
    details, and the commands that continue (`go_on`) and that repeat failed runs (`retry`), None if
    there is nothing to do. Raises ConfigError if the directory is no study.
    """
    plan = read_plan(folder)
    study, search, overrides = plan["study"], plan.get("search"), plan["command"]
    pool = (folder / plan["pool"]).resolve()
    recorded = {run["key"]: state.of(pool / run["key"], search is not None) for run in plan["runs"]}
    states = {key: state_and_curves(found, pool / key)[0] for key, found in recorded.items()}
    stops = stopping.decide(plan, states)
    runs = []
    for run in plan["runs"]:
        key, variant = run["key"], plan["variants"][run["variant"]]
        current = states[key]
        if key in stops.left_out:
            current = state.State("left out", why=stops.reasons[variant["label"]])
        runs.append(
            {
                "variant": title(variant),
                "seed": run["seed"],
                "status": current.status,
                "step": current.step,
                "steps": current.facts.get("steps") or math.ceil(variant["cost"]["steps"]),
                "why": current.why,
                "directory": str(pool / key),
            }
        )
    by_variant = {
        name: [run for run in runs if run["variant"] == name]
        for name in map(title, plan["variants"])
    }
    statuses = (*STATUSES, "left out") if study.get("stop") else STATUSES
    unfinished = any(run["status"] in ("running", "stopped", "open") for run in runs)
    # Runs with a damaged metrics.csv are not repeated.
    failed = any(found.status in ("failed", "diverged") for found in recorded.values())
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
        "go_on": from_here(folder, overrides) if unfinished or not proposed else None,
        "retry": from_here(folder, overrides, "study.retry=true") if failed else None,
    }


def _counts(runs: list[dict], statuses: tuple[str, ...]) -> dict[str, int]:
    """Returns the number of runs of each status."""
    return dict.fromkeys(statuses, 0) | Counter(run["status"] for run in runs)
