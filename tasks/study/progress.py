"""How far is a study? What has become of the runs of each variant, as plain data."""

import math
from collections import Counter
from pathlib import Path
from typing import Any, get_args

from tasks.study import state, stopping
from tasks.study.collect import counted
from tasks.study.saved_plan import read_plan
from xformer_kit.study.results import title
from xformer_kit.study.typed import command, from_here

STATUSES = tuple(status for status in get_args(state.Status) if status != "left out")


def progress(folder: Path) -> dict[str, Any]:
    """The state of a study's runs: `variants` with a count for each status, `runs` with what there
    is to say of each, and the commands to `go_on` and to `retry`, None where nothing is left to do.
    Raises ConfigError where there is no study.
    """
    plan = read_plan(folder)
    names = [title(variant) for variant in plan["variants"]]
    search = plan.get("search")
    pool, runs = (folder / plan["pool"]).resolve(), []
    ended = {run["key"]: state.of(pool / run["key"], search is not None) for run in plan["runs"]}
    states = {key: counted(now, pool / key)[0] for key, now in ended.items()}
    stops = stopping.look(plan, states)
    statuses = (*STATUSES, "left out") if plan["study"].get("stop") else STATUSES
    for run in plan["runs"]:
        now, variant = states[run["key"]], plan["variants"][run["variant"]]
        if run["key"] in stops.left_out:
            now = state.State("left out", why=stops.said[variant["label"]])
        steps = now.steps or math.ceil(variant["cost"]["steps"])
        about = {
            "variant": names[run["variant"]],
            "seed": run["seed"],
            "status": now.status,
            "step": now.step,
        }
        runs.append(about | {"steps": steps, "why": now.why, "directory": str(pool / run["key"])})
    counts = [Counter(run["status"] for run in runs if run["variant"] == name) for name in names]
    total = Counter(run["status"] for run in runs)
    left = sum(total[status] for status in ("running", "stopped", "open"))
    lost = any(
        now.status in ("failed", "diverged") for now in ended.values()
    )  # not for a damaged metrics.csv alone
    ahead = (
        0 if search is None or search["end"] else search["trials"] - len(search["points"])
    )  # not proposed yet
    return {
        "study": plan["study"]["name"],
        "question": plan["study"]["question"],
        "folder": str(folder),
        "counts": {status: total[status] for status in statuses},
        "variants": [
            {"name": n, "runs": sum(c.values())} | {s: c[s] for s in statuses}
            for n, c in zip(names, counts, strict=True)
        ],
        "runs": runs,
        "go_on": from_here(command(plan["command"]), folder) if left or ahead > 0 else None,
        "retry": from_here(command(plan["command"], "study.retry=true"), folder) if lost else None,
    }
