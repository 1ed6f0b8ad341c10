"""Evaluates a run on tasks of lm-eval: those of the library by name, and local task files."""

import hashlib
import logging
import math
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks import Config, State
from tasks.evaluation.stored import BITS_PER_BYTE, WEIGHT
from xformer_kit.inspect.memory import micro_batch
from xformer_kit.objective import OBJECTIVES
from xformer_kit.registry import ConfigError, Fault, Faults, config_error, did_you_mean
from xformer_kit.registry.messages import one_line
from xformer_kit.text.user_path import user_path

OPTION = "--tasks"
# Samples of the standard error of a score that is no mean, such as a perplexity or F1.
BOOTSTRAP = 1000
SEED = 1234  # of the examples in front of a question, as in lm-eval's own command


def harness_faults(config: Config) -> Faults:
    """Yields a fault without the package lm_eval, and for a run that continues no text."""
    if find_spec("lm_eval") is None:
        fix = 'Use pip install "xformer_kit[eval]".'
        yield Fault(OPTION, "needs the package lm_eval", got="none", fix=fix)
    task = config["task"]["name"]
    if OBJECTIVES[task].text_use != "goes on":
        rule = f"is for language models, which continue a text; this is a run of task={task}"
        yield Fault(OPTION, rule, fix="Leave it out.")


def load_tasks(names: Sequence[str], few_shot: int | None = None) -> dict[str, dict[str, Any]]:
    """Returns the tasks and groups of lm-eval, {"tasks": {name: Task}, "groups": {name: Group}}.

    names: of lm-eval's tasks, groups or tags; task files (YAML); or directories of them, also with
    files of groups.
    few_shot: answered examples in front of each question, unless the task sets 0; None: those of
    the task.

    Raises ConfigError for an unknown name, and for a task that cannot be loaded.
    """
    from datasets import disable_progress_bars

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    if not sys.stderr.isatty():
        disable_progress_bars()
    found: dict[str, dict[str, Any]] = {"tasks": {}, "groups": {}}
    for name, manager, specs in _located(names):
        for spec in specs:
            try:
                loaded = manager.load(spec)
            except Exception as error:
                raise _not_loaded(name, error) from None
            for kind, every in found.items():
                every.update({**(loaded.get(kind) or {}), **every})
    for name, task in found["tasks"].items():
        if getattr(task, "UNSAFE_CODE", False):
            rule = f"task '{name}' runs the code that a model writes, which is not supported"
            raise config_error(OPTION, rule, fix="Leave it out.")
        own = task.get_config("num_fewshot")
        if own is None or (few_shot is not None and own != 0):
            task.set_config(key="num_fewshot", value=few_shot or 0)
        task.set_fewshot_seed(seed=SEED)
    return found


def _located(names: Sequence[str]) -> Iterator[tuple[str, Any, list[str]]]:
    """Yields (name, TaskManager, what it loads) for each name. The index of lm-eval's own tasks,
    some 14,000 files, is read only if one of them is named.
    """
    from lm_eval.tasks import TaskManager

    paths = {name: user_path(name) for name in names}
    faults = [
        Fault(OPTION, "no file or directory has this name", got=f"'{name}'")
        for name, path in paths.items()
        if not path.exists() and (os.sep in name or path.suffix in (".yaml", ".yml"))
    ]
    if not faults and (unknown := [name for name, path in paths.items() if not path.exists()]):
        library = TaskManager()
        faults += [_unknown(name, library.all_tasks) for name in unknown if not _has(library, name)]
    if faults:
        raise ConfigError(faults)
    for name, path in paths.items():
        if path.is_dir():
            yield name, (own := _directory(path)), [*own.all_groups, *own.all_subtasks]
        elif path.exists():
            yield name, TaskManager(include_defaults=False), [str(path)]
        else:
            yield name, library, [name]


def _has(manager: Any, name: str) -> bool:
    return name in manager.task_index


def _unknown(name: str, known: Sequence[str]) -> Fault:
    fix = f"{did_you_mean(name, known)}lm-eval has {len(known):,}; a local task is a path to a YAML"
    return Fault(OPTION, f"lm-eval has no task '{name}'", fix=f"{fix} file.")


def _directory(path: Path) -> Any:
    """Returns a TaskManager of the tasks in a directory."""
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=path, include_defaults=False)
    if not manager.all_subtasks:
        rule = "must hold task files, *.yaml with a key `task`"
        raise config_error(OPTION, rule, got=f"'{path}'")
    return manager


def _not_loaded(name: str, error: Exception) -> ConfigError:
    """Returns the fault of a task whose file or data cannot be read."""
    path = user_path(name)
    if path.is_file() and re.search(rb"^group:", path.read_bytes(), re.MULTILINE):
        rule, fix = f"'{name}' is a group of tasks", "Name its directory."
        return config_error(OPTION, rule, fix=fix)
    got = f"{type(error).__name__}: {one_line(error)}"
    fix = "Correct its file."
    if not path.exists():
        fix = "Its data are downloaded from the Hugging Face hub: try again with a network."
    elif isinstance(error, ConnectionError | FileNotFoundError):
        fix = "Paths in it start at the current directory."
    return config_error(OPTION, f"task '{name}' cannot be loaded", got, fix)


def task_names(text: str) -> list[str]:
    """Returns the names in --tasks. Raises ConfigError if there is none."""
    if names := [name for name in text.split(",") if name]:
        return names
    raise config_error(OPTION, "must name at least one task", got=repr(text))


def digest(names: Sequence[str], tasks: dict[str, dict[str, Any]]) -> str:
    """sha256 of what tasks ask: the version of lm-eval, their local files with the YAML and Python
    files next to them, and the items of each.
    """
    found = hashlib.sha256(version("lm_eval").encode())
    for path in filter(Path.exists, map(user_path, names)):
        siblings = [file for end in ("*.yaml", "*.yml", "*.py") for file in path.parent.glob(end)]
        for file in sorted(path.rglob("*") if path.is_dir() else {path, *siblings}):
            found.update(file.read_bytes() if file.is_file() else b"")
    for name, task in tasks["tasks"].items():
        found.update(f"{name} {list(task.eval_docs)}".encode())
    return found.hexdigest()


def evaluate_tasks(
    run: Any, tasks: dict[str, Any], batch_size: int, max_length: int, limit: int | None = None
) -> tuple[dict[str, State], int]:
    """Returns (the result of each task and group as plain data, see `_result`; the number of tokens
    of answers that stand for unknown text). limit: only the first items of each task.

    Raises ConfigError for a task whose templates or functions raise an exception.
    """
    from lm_eval.evaluator import evaluate

    from tasks.evaluation import harness_model

    model = harness_model.HarnessModel(run, batch_size, max_length)
    try:
        found: Any = evaluate(model, tasks, limit=limit, bootstrap_iters=BOOTSTRAP)
    except ConfigError:
        raise
    except Exception as error:
        files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
        if harness_model.__file__ in files:
            raise
        got = f"{type(error).__name__}: {one_line(error)}"
        rule = f"{', '.join(tasks['tasks'])} cannot be evaluated"
        raise config_error(OPTION, rule, got, "Correct the task.") from None
    return {name: _result(found, name) for name in found["results"]}, model.unknown


def evaluate_run(
    run: Any,
    tasks: dict[str, Any],
    limit: int | None = None,
    *,
    max_len: int | None = None,
    rows: int | None = None,
) -> tuple[dict[str, State], State, int]:
    """Returns (results of tasks, what they have in common, the number of tokens of answers that
    stand for unknown text), see `evaluate_tasks`.

    max_len: tokens of a text that are read; None: model.max_len of the run, or data.seq_len. rows:
    sequences at a time; None: as in the run. Raises ConfigError if the model has fewer positions.
    """
    most, config = run.model.max_seq_len, run.config
    max_len = max_len or config["model"]["max_len"] or config["data"]["seq_len"]
    if most is not None and max_len > most:
        rule = f"must be at most {most:,}, the positions of the model"
        raise config_error("--max-len", rule, got=f"{max_len:,}")
    rows = rows or micro_batch(config)[0]
    results, unknown = evaluate_tasks(run, tasks, rows, max_len, limit)
    common = {"run": str(run.path), "checkpoint": run.checkpoint, "max_len": max_len}
    return {name: result | common for name, result in results.items()}, common, unknown


def _result(found: Any, name: str) -> State:
    """Returns the result of a task or group: task, lm_eval (version of the library), version (of
    the task), few_shot, subtasks (of a group), count (of items), metrics {name: {value, stderr,
    higher_is_better}}, and items [{id, hash, and its score by each metric}]. A score that is no
    number, such as the pairs from which F1 and perplexities are computed, is left out; bits per
    byte are those of the item.
    """
    values, higher = found["results"][name], found["higher_is_better"].get(name, {})
    metrics: dict[str, State] = {}
    for key, value in values.items():
        metric, comma, filter_ = key.partition(",")
        if comma and not metric.endswith("_stderr"):
            error = values.get(f"{metric}_stderr,{filter_}")
            metrics[_metric_name(metric, filter_)] = {
                "value": value,
                "stderr": error if isinstance(error, float) else None,
                "higher_is_better": higher.get(metric),
            }
    subtasks = _leaves(found, name)
    items = [
        {**item, "id": f"{one}/{item['id']}"} if one != name else item
        for one in subtasks or [name]
        for item in _items(found["samples"].get(one, []))
    ]
    return {
        "task": name,
        "lm_eval": version("lm_eval"),
        "version": found["versions"].get(name),
        "few_shot": found["n-shot"].get(name),
        "subtasks": subtasks,
        "count": len(items),
        "metrics": metrics,
        "items": items,
    }


def _leaves(found: Any, name: str) -> list[str]:
    """Returns the tasks of a group, also those of its groups; [] for a task."""
    children = found["group_subtasks"].get(name, [])
    return [leaf for child in children for leaf in _leaves(found, child) or [child]]


def _items(samples: Sequence[State]) -> list[State]:
    """Returns the scores of each item, by all filters of the task; with its bits per byte also its
    bytes.
    """
    items: dict[Any, State] = {}
    for sample in samples:
        key = {"id": sample["doc_id"], "hash": sample["doc_hash"][:16]}
        item = items.setdefault(sample["doc_id"], key)
        for metric in sample["metrics"]:
            if metric == BITS_PER_BYTE:
                log_p, count = sample[metric]
                item |= {metric: -log_p / (math.log(2) * max(count, 1)), WEIGHT: count}
            elif isinstance(score := sample[metric], bool | int | float):
                item[_metric_name(metric, sample["filter"])] = float(score)
    return list(items.values())


def _metric_name(metric: str, filter_: str) -> str:
    """acc, or exact_match,strict-match of a task with filters of its answers."""
    return metric if filter_ == "none" else f"{metric},{filter_}"
