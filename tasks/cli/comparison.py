"""Compares runs: configs, metrics, cost and speed. Runs that differ only in their seed form one
group.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tasks import Config, Facts, State
from tasks.evaluation.stored import compare_items, stored
from tasks.logging import summary
from tasks.process.command_faults import faults_at
from tasks.study import state
from xformer_kit.checkpoint import DamagedError, read
from xformer_kit.config import read_config
from xformer_kit.config.saved.config_file import saved_components
from xformer_kit.config.saved.difference import as_literal, differing, flat
from xformer_kit.config.saved.identity import hashed_config
from xformer_kit.config.saved.run_directories import CONFIG, run_directories
from xformer_kit.metrics import VAL, VAL_LOSS
from xformer_kit.objective import OBJECTIVES, PER_TOKEN
from xformer_kit.pretrained import run_directory
from xformer_kit.registry import ConfigError, Fault, config_error, did_you_mean
from xformer_kit.study.answer import Runs, StudyAnswer, answer
from xformer_kit.study.metric import metric
from xformer_kit.study.statistics import interval
from xformer_kit.text.user_path import user_path

COST = ("params", "flops_per_token", "tokens_per_second", "peak_memory_bytes")
# Costs that --metric can compare: it is known whether a higher value is better.
COMPARABLE_COSTS = ("tokens_per_second",)
BY_BYTES = f"{VAL}bits_per_byte"
MAX_PATHS = 3  # differing paths in a group's name; with more, the name is its letter


@dataclass
class RunGroup:
    """Runs that differ only in their seed, on the same data."""

    config: Config  # flat, without the seed and what does not affect the results
    components: Facts  # the user's components, see `saved_components`
    data_paths: State = field(default_factory=dict)  # config path -> file
    data_fingerprint: str | None = None  # None if no run has a summary or a checkpoint
    runs: dict[int, Path] = field(default_factory=dict)  # seed -> directory
    summaries: dict[int, Facts] = field(default_factory=dict)  # seed -> summary.json
    diverged: dict[int, int] = field(default_factory=dict)  # seed -> step
    name: str = ""  # the values in which it differs, such as placement=post

    def values(self, name: str) -> dict[int, float]:
        """Returns {seed: value of a metric or cost} of the runs that have it."""
        found = {seed: facts.get(name) for seed, facts in self.summaries.items()}
        return {
            seed: float(value) for seed, value in found.items() if isinstance(value, (int, float))
        }

    def accepts(self, config: Config, components: Facts, seed: int, data: str | None) -> bool:
        """Whether a run belongs to the group. The data of a run may not be known."""
        return (
            (config, components) == (self.config, self.components)
            and seed not in self.runs
            and (None in (data, self.data_fingerprint) or data == self.data_fingerprint)
        )


@dataclass
class Comparison:
    """Groups of runs; the others are compared with the first one."""

    groups: list[RunGroup]
    differing: list[str]  # config paths
    metrics: list[str]  # final metrics that all finished runs have
    metric: str  # by which the groups are compared
    answer: StudyAnswer | None  # None if there is only one group
    notes: list[str]  # what makes the values hard to compare

    def plain(self) -> State:
        """Returns the comparison as plain data, for --json."""
        names = (*self.metrics, *COST)
        return {
            "metric": self.metric,
            "differing": self.differing,
            "groups": [
                {
                    "name": group.name,
                    "runs": {seed: str(path) for seed, path in group.runs.items()},
                    "diverged": group.diverged,
                    "config": {path: group.config.get(path) for path in self.differing},
                    "values": {name: group.values(name) for name in names},
                    "intervals": {
                        name: asdict(interval(list(group.values(name).values()))) for name in names
                    },
                }
                for group in self.groups
            ],
            "verdicts": [asdict(verdict) for verdict in self.answer.verdicts]
            if self.answer
            else [],
            "notes": self.notes,
        }


def compare_runs(
    names: Sequence[str], requested: str | None = None, components: Sequence[str] = ()
) -> Comparison:
    """Returns the comparison of the runs in these directories by the requested metric.

    A run that has not ended is left out, with a note. Raises ConfigError for a directory that is no
    run, if the first run that is named or all but one have not ended, for runs of several tasks,
    and for a metric that not all of them have.
    """
    paths = _directories(names)
    configs = {path: read_config(path) for path in paths}
    named = [user_path(name) for name in names]
    required = paths[0] if paths[0] in named else None
    ends, left_out = _final_states(paths, required, components)
    configs = {path: configs[path] for path in ends}
    _require_one_task(configs)
    finished = {path: end.facts for path, end in ends.items() if end.status == "finished"}
    metrics, chosen = _metrics(finished, requested)
    groups = _groups(configs, ends)
    if len({group.data_fingerprint for group in groups} - {None}) > 1:
        for group in groups:
            group.config |= group.data_paths
    differing_paths = differing([group.config for group in groups])
    other_tokenizers = _differ_in_tokenizers(configs, differing_paths)
    if other_tokenizers and requested is None and BY_BYTES in metrics:
        chosen = BY_BYTES
    notes = [*left_out, *_notes(finished, other_tokenizers)]
    _set_names(groups, differing_paths)
    baseline, *others = (Runs(group.name, group.values(chosen), group.diverged) for group in groups)
    verdicts = answer(baseline, others, metric(chosen)) if others else None
    return Comparison(groups, differing_paths, metrics, chosen, verdicts, notes)


def compare_tasks(names: Sequence[str], tasks: Sequence[str], metric: str | None) -> State:
    """Returns the comparisons of the first run with each of the others, item by item, on tasks that
    were evaluated; see `compare_items`.

    names: runs, or published models. Raises ConfigError for fewer than two runs, and for a task
    that one of them was not evaluated on.
    """
    _require_runs(names)
    results = {}
    for i, name in enumerate(names):
        run = user_path(name)
        run = run if (run / CONFIG).is_file() else run_directory(name)
        results[letter(i)] = [stored(run, name, task) for task in tasks]
    first, *others = results
    return {
        "runs": {
            mark: {"path": found[0]["run"], "checkpoint": found[0]["checkpoint"]}
            for mark, found in results.items()
        },
        "comparisons": [
            {"runs": [first, other]} | compare_items(pair, (first, other), metric)
            for other in others
            for pair in zip(results[first], results[other], strict=True)
        ],
    }


def _require_runs(names: Sequence[str | Path]) -> None:
    """Raises ConfigError without the package scipy, and for fewer than two runs."""
    if find_spec("scipy") is None:
        raise config_error(
            "compare",
            "needs the package scipy for its intervals",
            "none",
            "Use pip install 'xformer_kit[study]'.",
        )
    if len(names) < 2:
        raise config_error(
            "compare",
            "takes two runs or more",
            ", ".join(map(str, names)),
            "Name another run's directory.",
        )


def _directories(names: Sequence[str]) -> list[Path]:
    """Returns the directories of at least two runs. Raises ConfigError as `_require_runs`."""
    paths = run_directories(names)
    _require_runs(paths)
    return paths


def _differ_in_tokenizers(configs: Mapping[Path, Config], paths: Iterable[str]) -> bool:
    """Whether runs with losses per token have different tokenizers of the same data. paths: those
    in which their configs differ.
    """
    nodes = {path.partition(".")[0] for path in paths}
    task = next(iter(configs.values()))["task"]["name"]
    of_tokenizers = "tokenizer" in nodes and "data" not in nodes
    return of_tokenizers and OBJECTIVES[task].loss_unit == PER_TOKEN


def _require_one_task(configs: Mapping[Path, Facts]) -> None:
    tasks: dict[str, Path] = {}
    for path, config in configs.items():
        tasks.setdefault(config["task"]["name"], path)
    if len(tasks) > 1:
        raise config_error(
            "compare",
            "runs must be of one task",
            ", ".join(f"{task} ({path})" for task, path in tasks.items()),
            "Compare those of each task by themselves.",
        )


def _final_states(
    paths: Sequence[Path], required: Path | None, components: Sequence[str]
) -> tuple[dict[Path, state.State], list[str]]:
    """Returns the states of the runs that finished or diverged, and a note on each of the others.
    Raises ConfigError if the required run or all but one are among these.
    """
    found: dict[Path, state.State] = {}
    others: dict[Path, str] = {}
    for path in paths:
        end = state.of(path)
        if end.status in ("finished", "diverged"):
            found[path] = end
            continue
        summary.check_summary(path, components)
        why = f" ({end.why.splitlines()[0].rstrip('.')})" if end.why else ""
        others[path] = f"is not finished{why}; it has no summary.json"
    if len(found) > 1 and required not in others:
        return found, [f"{path} {rule}, and is left out." for path, rule in others.items()]
    # It is not proposed to resume it, which is refused if its data were changed.
    fix = "Name a finished run in its place."
    raise ConfigError(Fault(str(path), rule, fix=fix) for path, rule in others.items())


def _metrics(finished: Mapping[Path, Facts], requested: str | None) -> tuple[list[str], str]:
    """Returns (metrics to show, metric to compare by). Raises ConfigError if a run lacks the
    requested metric, or if it is not known whether higher values are better.
    """
    if not finished:
        raise config_error(
            "compare",
            "all of these runs diverged, so there is no metric to compare",
            fix="Name one that finished.",
        )
    of_runs = {path: summary.final_metrics(facts) for path, facts in finished.items()}
    first, *others = of_runs.values()
    common = [name for name in first if all(name in metrics for metrics in others)]
    if requested is None:
        return common, VAL_LOSS if VAL_LOSS in common else _first_comparable(common)
    for path, metrics in of_runs.items():
        if requested not in (*metrics, *COMPARABLE_COSTS):
            raise config_error(
                "--metric",
                f"{path} has no metric '{requested}'",
                fix=(
                    f"{did_you_mean(requested, common)}All of these runs have:"
                    f" {', '.join((*common, *COMPARABLE_COSTS))}."
                ),
            )
    with faults_at("--metric"):
        metric(requested)
    return [requested], requested


def _first_comparable(names: Iterable[str]) -> str:
    """Returns the first metric of which it is known whether higher values are better."""
    for name in names:
        with suppress(ConfigError):
            metric(name)
            return name
    raise config_error(
        "compare",
        "these runs have no metric in common",
        fix="Compare those of the same data by themselves.",
    )


def _groups(configs: Mapping[Path, Config], ends: Mapping[Path, state.State]) -> list[RunGroup]:
    """Returns the runs in groups with equal config (except for the seed), code and data, in the
    order of the command line. A second run with the same seed starts another group.
    """
    groups: list[RunGroup] = []
    for path, config in configs.items():
        end, seed = ends[path], int(config["seed"])
        kept = dict(flat({k: value for k, value in hashed_config(config).items() if k != "seed"}))
        run = kept, saved_components(path)
        data = end.facts.get("data_fingerprint") or _saved_fingerprint(path)
        group = next((group for group in groups if group.accepts(*run, seed, data)), None)
        if group is None:
            data_paths = {
                key: value
                for key, value in flat(config)
                if key.startswith("data.") and key.endswith("path")
            }
            groups.append(group := RunGroup(*run, data_paths))
        group.runs[seed], group.data_fingerprint = path, data or group.data_fingerprint
        if end.status == "diverged":
            group.diverged[seed] = end.step or 0
        else:
            group.summaries[seed] = end.facts
    return groups


def _saved_fingerprint(run: Path) -> str | None:
    """Returns the fingerprint of the data in the checkpoint of a run; None if none can be read."""
    with suppress(DamagedError):
        return read(run / "checkpoints" / "last.ckpt").data_fingerprint
    return None


def _set_names(groups: list[RunGroup], paths: list[str]) -> None:
    """Name each group by its values at the paths that differ, or by its letter."""
    for i, group in enumerate(groups):
        values = [
            f"{path.removesuffix('.name')}={as_literal(group.config[path])}"
            for path in paths
            if path in group.config
        ]
        group.name = ", ".join(values) if 0 < len(values) <= MAX_PATHS else letter(i)
    for i, group in enumerate(groups):
        if group.name != letter(i) and [other.name for other in groups].count(group.name) > 1:
            group.name = f"{letter(i)} ({group.name})"


def letter(number: int) -> str:
    """Returns A, B, ..., Z, AA, AB, ... for 0, 1, ..."""
    return (letter(number // 26 - 1) if number >= 26 else "") + chr(ord("A") + number % 26)


def _notes(finished: Mapping[Path, Facts], other_tokenizers: bool) -> Iterable[str]:
    """Yields what makes the values hard to compare: other tokenizers, data, steps or devices, early
    ends.
    """
    if other_tokenizers:
        yield (
            "These runs have different tokenizers: losses per token do not compare between them,"
            " bits per byte do."
        )
    devices = {path: facts.get("devices", {}) for path, facts in finished.items()}
    of_runs = {
        "data": {facts.get("data_fingerprint") for facts in finished.values()},
        "number of steps": {facts["steps"] for facts in finished.values()},
        "kind of device": {found.get("kind") for found in devices.values()},
    }
    if other_tokenizers:  # their tokens differ in any case
        del of_runs["data"]
    if different := [name for name, values in of_runs.items() if len(values) > 1]:
        yield (
            f"Not all of these runs have the same {', '.join(different)}: what depends on it does"
            " not compare."
        )
    for path, facts in finished.items():
        if facts.get("stopped"):
            yield f"{path}: {facts['stopped']}, before its last step."
