"""Compares runs: configs, figures, cost and speed, with runs that differ in their seed only
grouped.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tasks import Config, Facts, State
from tasks.logging import summary
from tasks.run.faults import faults_at
from tasks.study import state
from xformer_kit.config import read_config
from xformer_kit.config.difference import as_literal, differing, flat
from xformer_kit.config.identity import hashed_config
from xformer_kit.config.saved import saved_components
from xformer_kit.registry import ConfigError, config_error, did_you_mean
from xformer_kit.registry.command_lines import resume, xformer
from xformer_kit.study.answer import Runs, StudyAnswer, answer
from xformer_kit.study.metric import metric
from xformer_kit.study.statistics import interval

COST = ("params", "flops_per_token", "tokens_per_second", "peak_memory_bytes")
# Of what a run costs: that of which more is better, whatever the question.
JUDGED = ("tokens_per_second",)
SAID = 3  # differing paths that a group's name holds; of more, it is called by its letter


@dataclass
class RunGroup:
    """Runs that differ in their seed only, on the same data."""

    config: Config  # flat, without the seed and what decides no result
    places: State = field(default_factory=dict)  # of the data: config path -> file
    data: str | None = None  # their fingerprint, if a run finished
    runs: dict[int, Path] = field(default_factory=dict)  # seed -> directory
    # Seed -> summary.json of a run that finished.
    facts: dict[int, Facts] = field(default_factory=dict)
    diverged: dict[int, int] = field(default_factory=dict)  # seed -> step
    name: str = ""  # placement=post: what is different in it

    def values(self, name: str) -> dict[int, float]:
        """Seed -> a figure, of the runs that have it."""
        found = {seed: facts.get(name) for seed, facts in self.facts.items()}
        return {
            seed: float(value) for seed, value in found.items() if isinstance(value, (int, float))
        }


@dataclass
class Comparison:
    """Groups side by side, the first one being what the others are compared with."""

    groups: list[RunGroup]
    differing: list[str]  # config paths
    metrics: list[str]  # figures at the end of a run that all finished runs have
    metric: str  # in which the groups are judged
    judged: StudyAnswer | None  # of groups with a seed in common; None of one group
    notes: list[str]  # what makes the figures hard to compare

    def plain(self) -> State:
        """For machines."""
        groups = []
        for group in self.groups:
            names = (*self.metrics, *COST)
            groups.append(
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
            )
        verdicts = [asdict(verdict) for verdict in self.judged.verdicts] if self.judged else []
        found = {
            "metric": self.metric,
            "differing": self.differing,
            "groups": groups,
            "verdicts": verdicts,
        }
        return found | {"notes": self.notes}


def compare_runs(
    names: Sequence[str], wanted: str | None = None, components: Sequence[str] = ()
) -> Comparison:
    """The runs of these directories. Raises ConfigError for one that is no run or is not over, for
    runs of several tasks, and for a metric that not all of them have.
    """
    paths = list(dict.fromkeys(Path(name).expanduser() for name in names))
    if find_spec("scipy") is None:
        raise config_error(
            "compare",
            "needs the package scipy for its intervals",
            "none",
            "Use pip install 'xformer_kit[study]'.",
        )
    if study := next((path for path in paths if (path / "plan.json").is_file()), None):
        raise config_error(
            "compare",
            "takes runs",
            f"{study}, which is a study",
            f"Try {xformer('report', study)}",
        )
    if len(paths) < 2:
        raise config_error(
            "compare",
            "takes two runs or more",
            ", ".join(names),
            "Name another run's directory.",
        )
    configs = {path: read_config(path) for path in paths}
    _one_task(configs)
    ends = {path: _ended(path, components) for path in paths}
    finished = {path: end.facts for path, end in ends.items() if end.status == "finished"}
    metrics, chosen = _metrics(finished, wanted)
    groups = _groups(configs, ends)
    if len({group.data for group in groups} - {None}) > 1:
        for group in groups:
            group.config |= group.places
    paths_ = differing([group.config for group in groups])
    _name(groups, paths_)
    sides = [Runs(group.name, group.values(chosen), group.diverged) for group in groups]
    judged = answer(sides[0], sides[1:], chosen) if len(sides) > 1 else None
    return Comparison(groups, paths_, metrics, chosen, judged, list(_notes(finished)))


def _one_task(configs: Mapping[Path, Facts]) -> None:
    tasks: dict[str, Path] = {}
    for path, config in configs.items():
        tasks.setdefault(config["task"]["name"], path)
    if len(tasks) > 1:
        which = ", ".join(f"{task} ({path})" for task, path in tasks.items())
        raise config_error(
            "compare",
            "runs must be of one task",
            which,
            "Compare those of each task by themselves.",
        )


def _ended(path: Path, components: Sequence[str]) -> state.State:
    """How a run ended: with figures, or diverged."""
    end = state.of(path)
    if end.status in ("finished", "diverged"):
        return end
    summary.check_summary(path, components)
    why = f" ({end.why.splitlines()[0].rstrip('.')})" if end.why else ""
    raise config_error(
        path,
        f"is not finished{why}; it has no summary.json",
        fix=f"Leave it out, or go on with it: {resume(path, components)}",
    )


def _metrics(finished: Mapping[Path, Facts], wanted: str | None) -> tuple[list[str], str]:
    """(metrics to show, metric to compare by). Raises ConfigError if a run lacks the metric, or if
    its direction is not known.
    """
    if not finished:
        raise config_error(
            "compare",
            "all of these runs diverged, so there is no figure to compare",
            fix="Name one that finished.",
        )
    has = {path: summary.final_metrics(facts) for path, facts in finished.items()}
    common = [
        name for name in next(iter(has.values())) if all(name in found for found in has.values())
    ]
    if wanted is None:
        return common, "val/loss" if "val/loss" in common else _first_known(common)
    for path, found in has.items():
        if wanted not in (*found, *JUDGED):
            raise config_error(
                "--metric",
                f"{path} has no metric '{wanted}'",
                fix=(
                    f"{did_you_mean(wanted, common)}All of these runs have:"
                    f" {', '.join((*common, *JUDGED))}."
                ),
            )
    with faults_at("--metric"):  # of which it is not known whether higher values are better
        metric(wanted)
    return [wanted], wanted


def _first_known(names: Iterable[str]) -> str:
    for name in names:
        try:
            metric(name)
        except ConfigError:
            continue
        return name
    raise config_error(
        "compare",
        "these runs have no metric in common",
        fix="Compare those of the same data by themselves.",
    )


def _groups(configs: Mapping[Path, Config], ends: Mapping[Path, state.State]) -> list[RunGroup]:
    """Runs of one config but for the seed, of one code and data, in the order in which they were
    named. A run whose twin of the same seed is there already begins another group.
    """
    found: dict[str, list[RunGroup]] = {}
    order: list[RunGroup] = []
    for path, config in configs.items():
        kept = dict(
            flat({key: value for key, value in hashed_config(config).items() if key != "seed"})
        )
        facts, seed = ends[path].facts, int(config["seed"])
        twins = found.setdefault(
            json.dumps([kept, saved_components(path)], sort_keys=True, default=str), []
        )
        data = facts.get("data_fingerprint")  # which is not known of a run that diverged
        able = (
            group
            for group in twins
            if seed not in group.runs and (None in (data, group.data) or data == group.data)
        )
        group = next(able, None)
        if group is None:
            places = {
                key: value
                for key, value in flat(config)
                if key.startswith("data.") and key.endswith("path")
            }
            twins.append(group := RunGroup(kept, places))
            order.append(group)
        group.runs[seed], group.data = path, data or group.data
        if ends[path].status == "diverged":
            group.diverged[seed] = ends[path].step or 0
        else:
            group.facts[seed] = facts
    return order


def _name(groups: list[RunGroup], paths: list[str]) -> None:
    letters = [letter(i) for i in range(len(groups))]
    for group, mark in zip(groups, letters, strict=True):
        said = [
            f"{path.removesuffix('.name')}={as_literal(group.config[path])}"
            for path in paths
            if path in group.config
        ]
        group.name = ", ".join(said) if 0 < len(said) <= SAID else mark
    for group, mark in zip(groups, letters, strict=True):
        if [other.name for other in groups].count(group.name) > 1:
            group.name = f"{mark} ({group.name})" if group.name != mark else mark


def letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    return (letter(number // 26 - 1) if number >= 26 else "") + chr(ord("A") + number % 26)


def _notes(finished: Mapping[Path, Facts]) -> Iterable[str]:
    if len({facts.get("data_fingerprint") for facts in finished.values()}) > 1:
        yield (
            "Not all of these runs read the same data: losses per token or per byte of"
            " different texts are hardly comparable."
        )
    if len({facts.get("steps") for facts in finished.values()}) > 1:
        steps = ", ".join(f"{facts['steps']:,}" for facts in finished.values())
        yield f"Not all of these runs took as many steps: {steps}."
    if len({json.dumps(facts.get("devices", {}).get("kind")) for facts in finished.values()}) > 1:
        yield (
            "Not all of these runs were trained on the same kind of device: their speed and"
            " memory are not comparable."
        )
    for path, facts in finished.items():
        if facts.get("stopped"):
            yield f"{path}: {facts['stopped']}, before its last step."
