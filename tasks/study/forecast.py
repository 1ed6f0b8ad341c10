"""Writes the forecast of a ladder before its largest size is trained."""

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime

from tasks.logging.files import replace_text
from tasks.study.collect import results
from tasks.study.resolve import StudyPlan
from xformer_kit.study.forecast import FILE, digest, foretold, is_of
from xformer_kit.study.metric import Metric
from xformer_kit.study.plan import StudyRun
from xformer_kit.study.report.forecast import predictions
from xformer_kit.study.statistics import Estimate


def split(plan: StudyPlan) -> tuple[StudyPlan, list[StudyRun]]:
    """Returns (the plan of the runs that are fitted, the runs that are foretold)."""
    chosen = {id(plan.variants[i]) for i in foretold([one.plain() for one in plan.variants])}
    fitted = [run for run in plan.runs if id(run.variant) not in chosen]
    return replace(plan, runs=fitted), [run for run in plan.runs if id(run.variant) in chosen]


def write(plan: StudyPlan, larger: list[StudyRun]) -> None:
    """Writes forecast.json and prints it. It is written once: a forecast of these runs is kept as
    it is, one of another ladder is kept as forecast_HASH.json, and none is written as soon as one
    of the larger runs has begun.
    """
    path, found = plan.folder / FILE, results(plan.folder)
    if (old := found.forecast) is not None and is_of(old, found.variants):
        return
    if any(plan.directory(run).exists() for run in larger):
        text = "No forecast is written: runs of the largest size have begun already."
        print(text, file=sys.stderr)
        return
    if old is not None:
        path.rename(path.with_stem(f"forecast_{old['sha256'][:8]}"))
    content = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "metric": plan.node["metric"],
        "fitted": {
            one.key: one.facts[plan.node["metric"]]
            for one in found.outcomes
            if one.status == "finished"
        },
        "predictions": predictions(found),
    }
    content["sha256"] = digest(content)
    replace_text(path, json.dumps(content, indent=2) + "\n")
    for line in lines(content, found.metric):
        print(line, file=sys.stderr)


def lines(content: dict, metric: Metric) -> list[str]:
    """Returns the forecast in words."""
    texts = []
    for name, one in content["predictions"].items():
        text = one.get("why") or "{} (95 % CI {})".format(
            *metric.estimate(Estimate(one["mean"], one["low"], one["high"]), unit=True)
        )
        texts.append(f"Forecast of {name}: {text}")
    return [*texts, f"Written at {content['time']}, sha256 {content['sha256']}"]
