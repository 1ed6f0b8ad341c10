"""Results of tasks in the directory of a run, and two of them compared item by item."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from tasks import State
from xformer_kit.data import cache
from xformer_kit.files.saved_files import read_object
from xformer_kit.registry import config_error, suggestion
from xformer_kit.study.metric import Metric
from xformer_kit.study.paired_items import item_difference, item_sentence
from xformer_kit.study.results import Results
from xformer_kit.text.command_lines import xformer

FOLDER = "evaluations"
BITS_PER_BYTE, WEIGHT = "bits_per_byte", "bytes"  # keys of an item; its share of the mean


def result_file(run: Path, task: str) -> Path:
    """RUN/evaluations/TASK.json."""
    return run / FOLDER / f"{task.replace('/', '_')}.json"


def store(run: Path, result: State) -> Path:
    """Writes the result of a task over an earlier one, and returns its file."""
    file = result_file(run, result["task"])
    file.parent.mkdir(exist_ok=True)
    cache.write(file, json.dumps(result, ensure_ascii=False) + "\n")
    return file


def is_of(run: Path, task: str, asked: str) -> bool:
    """Whether a run has a result of a task with the same items and options."""
    file = result_file(run, task)
    return file.is_file() and read_object(file, {}, fix="Delete it.").get("asked") == asked


def stored(run: Path, name: str, task: str) -> State:
    """Returns the result of a task of a run. name: of the run on the command line. Raises
    ConfigError if it was not evaluated.
    """
    file = result_file(run, task)
    if not file.is_file():
        known = sorted(path.stem for path in (run / FOLDER).glob("*.json"))
        line = xformer("evaluate", name, "--tasks", task)
        rule = f"{name} has no results of '{task}'"
        fix = f"{suggestion(task, known, of='It has')} Or: {line}"
        raise config_error("--tasks", rule, fix=fix)
    return read_object(file, {}, fix="Evaluate it again.")


def scored(found: Results, task: str, requested: str | None = None) -> Results:
    """Returns the results of a study with the score of a task as its metric, and its own metric as
    a secondary one. Runs that have not finished have no score.

    requested: the score; None: the first one of the task. Raises ConfigError for an unknown one.
    """
    each = {
        one.directory: stored(Path(one.directory), one.directory, task)["metrics"]
        for one in found.outcomes
        if one.status == "finished"
    }
    known = next(iter(each.values()))
    if not known or requested not in (None, *known):
        rule = f"'{task}' has no score '{requested}'" if requested else f"'{task}' has no score"
        raise config_error("--metric", rule, fix=suggestion(requested or "", known, of="It has"))
    name = requested or next(iter(known))
    higher, metric = known[name]["higher_is_better"], f"{task}/{name}"
    study = dict(found.study) | {
        "metric": metric,
        "higher_is_better": True if higher is None else higher,
        "also": list(dict.fromkeys([found.study["metric"], *(found.study.get("also") or ())])),
        "claim": None,
        "margin": None,
    }
    outcomes = [
        replace(one, facts={**one.facts, metric: each[one.directory][name]["value"]})
        if one.directory in each
        else one
        for one in found.outcomes
    ]
    return replace(found, study=study, outcomes=outcomes)


def compare_items(
    results: tuple[State, State], names: tuple[str, str], requested: str | None = None
) -> State:
    """Returns the comparison of two results of a task, first minus second, over the items that both
    have, as plain data with the `sentence`.

    requested: the metric; None: the first one with a score for each item. Raises ConfigError for
    items of other texts, other numbers of examples, and a metric that one of them lacks.
    """
    one, two = results
    task = one["task"]
    keys = [{(item["id"], item["hash"]): item for item in result["items"]} for result in results]
    common = [key for key in keys[0] if key in keys[1]]
    if not common or one["few_shot"] != two["few_shot"]:
        differ = "items" if not common else "numbers of examples, --few-shot"
        rule = f"the results of '{task}' have different {differ}, so that they do not compare"
        raise config_error("--tasks", rule, fix="Evaluate both runs again.")
    pairs = [(keys[0][key], keys[1][key]) for key in common]
    metric = _metric(one, pairs, requested)
    first, second = ([item[metric.name] for item in side] for side in zip(*pairs, strict=True))
    weighted = metric.name == BITS_PER_BYTE
    weights = [float(item[WEIGHT] if weighted else 1) for item, _ in pairs]
    found = item_difference(first, second, weights)
    left_out = len(keys[0].keys() ^ keys[1].keys())
    note = f" {left_out:,} items of only one of them are left out." if left_out else ""
    return {
        "task": task,
        "metric": metric.name,
        "first": float(np.average(first, weights=weights)),
        "second": float(np.average(second, weights=weights)),
        "difference": found.mean,
        "low": found.low,
        "high": found.high,
        "items": found.items,
        "p": found.p,
        "only_first": found.only_first,
        "only_second": found.only_second,
        "sentence": item_sentence(names, task, metric, found) + note,
    }


def _metric(result: State, pairs: list[tuple[State, State]], requested: str | None) -> Metric:
    """Returns the metric to compare by."""
    shared = [name for name in pairs[0][0] if all(name in item for pair in pairs for item in pair)]
    known = [name for name in shared if name not in ("id", "hash", WEIGHT)]
    if not known or requested not in (None, *known):
        rule = f"'{result['task']}' has no score of each item"
        if requested is None:
            raise config_error("--tasks", rule, fix="Only such tasks are compared.")
        rule += f" by '{requested}'"
        raise config_error("--metric", rule, fix=suggestion(requested, known, of="It has"))
    name = requested or known[0]
    higher = result["metrics"].get(name, {}).get("higher_is_better")
    return Metric(name, True if higher is None else bool(higher))
