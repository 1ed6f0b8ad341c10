"""The progress of a study: status of all runs, as plain data."""

import math
from collections import Counter
from pathlib import Path
from typing import get_args

from tasks.study import state, stopping
from tasks.study.collect import state_and_curves
from tasks.study.saved_plan import read_plan
from xformer_kit.study.command import command, from_here
from xformer_kit.study.results import Status, title

STATUSES = tuple(status for status in get_args(Status) if status != "left out")


def progress(folder: Path) -> dict:
    """The progress of a study: `variants` with a count for each status, `runs` with their details,
    and the commands that continue (`go_on`) and that repeat failed runs (`retry`), None if there is
    nothing to do. Raises ConfigError if the directory is no study.
    """
    plan = read_plan(folder)
    variants, search = plan["variants"], plan.get("search")
    pool, runs = (folder / plan["pool"]).resolve(), []
    ended = {run["key"]: state.of(pool / run["key"], search is not None) for run in plan["runs"]}
    states = {key: state_and_curves(found, pool / key)[0] for key, found in ended.items()}
    stops = stopping.decide(plan, states)
    for run in plan["runs"]:
        key, variant = run["key"], variants[run["variant"]]
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
    statuses = (*STATUSES, "left out") if plan["study"].get("stop") else STATUSES
    unfinished = any(run["status"] in ("running", "stopped", "open") for run in runs)
    # Runs with a damaged metrics.csv are not repeated.
    failed = any(found.status in ("failed", "diverged") for found in ended.values())
    proposed = search is None or search["end"] or len(search["points"]) >= search["trials"]
    overrides = plan["command"]
    return {
        "study": plan["study"]["name"],
        "question": plan["study"]["question"],
        "folder": str(folder),
        "counts": _counts(runs, statuses),
        "variants": [
            {"name": name, "runs": len(own)} | _counts(own, statuses)
            for name in map(title, variants)
            for own in [[run for run in runs if run["variant"] == name]]
        ],
        "runs": runs,
        "go_on": from_here(command(overrides), folder) if unfinished or not proposed else None,
        "retry": from_here(command(overrides, "study.retry=true"), folder) if failed else None,
    }


def _counts(runs: list[dict], statuses: tuple[str, ...]) -> dict[str, int]:
    count = Counter(run["status"] for run in runs)
    return {status: count[status] for status in statuses}
