"""The progress of a study: what has become of the runs of each variant, as plain data."""

import math
from collections import Counter
from pathlib import Path
from typing import get_args

from tasks.study import state, stopping
from tasks.study.collect import counted
from tasks.study.saved_plan import read_plan
from xformer_kit.study.command import command, from_here
from xformer_kit.study.results import Status, title

STATUSES = tuple(status for status in get_args(Status) if status != "left out")


def progress(folder: Path) -> dict:
    """The state of a study's runs: `variants` with a count for each status, `runs` with what there
    is to say of each, and the commands to `go_on` and to `retry`, None where nothing is left to do.
    Raises ConfigError where there is no study.
    """
    plan = read_plan(folder)
    variants, search = plan["variants"], plan.get("search")
    pool, runs = (folder / plan["pool"]).resolve(), []
    ended = {run["key"]: state.of(pool / run["key"], search is not None) for run in plan["runs"]}
    states = {key: counted(now, pool / key)[0] for key, now in ended.items()}
    stops = stopping.decide(plan, states)
    for run in plan["runs"]:
        key, variant = run["key"], variants[run["variant"]]
        now = states[key]
        if key in stops.left_out:
            now = state.State("left out", why=stops.reasons[variant["label"]])
        runs.append(
            {
                "variant": title(variant),
                "seed": run["seed"],
                "status": now.status,
                "step": now.step,
                "steps": now.facts.get("steps") or math.ceil(variant["cost"]["steps"]),
                "why": now.why,
                "directory": str(pool / key),
            }
        )
    statuses = (*STATUSES, "left out") if plan["study"].get("stop") else STATUSES
    left = any(run["status"] in ("running", "stopped", "open") for run in runs)
    # A damaged metrics.csv is no reason to run again.
    lost = any(now.status in ("failed", "diverged") for now in ended.values())
    proposed = search is None or search["end"] or len(search["points"]) >= search["trials"]
    line = plan["command"]
    return {
        "study": plan["study"]["name"],
        "question": plan["study"]["question"],
        "folder": str(folder),
        "counts": _counts(runs, statuses),
        "variants": [
            {"name": name, "runs": len(mine)} | _counts(mine, statuses)
            for name in map(title, variants)
            for mine in [[run for run in runs if run["variant"] == name]]
        ],
        "runs": runs,
        "go_on": from_here(command(line), folder) if left or not proposed else None,
        "retry": from_here(command(line, "study.retry=true"), folder) if lost else None,
    }


def _counts(runs: list[dict], statuses: tuple[str, ...]) -> dict[str, int]:
    count = Counter(run["status"] for run in runs)
    return {status: count[status] for status in statuses}
