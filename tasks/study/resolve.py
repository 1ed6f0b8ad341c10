"""The resolved plan of a study: a plan whose data are read, whose sizes are counted, and whose
budget is met.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tasks.logging import summary
from tasks.study import ladder_steps, state
from tasks.study.state import State
from tasks.study.timing import LONG, StepClock
from xformer_kit.inspect.cost import Cost, tokens
from xformer_kit.registry import ConfigError, Fault
from xformer_kit.study import budget
from xformer_kit.study.key import run_key
from xformer_kit.study.nodes import Config
from xformer_kit.study.plan import Compose, StudyRun, Variant, runs, titled, variants

PLAN = "plan.json"


@dataclass
class StudyPlan:
    """The runs of a study, and where they lie."""

    node: dict  # of the study, complete
    command: list[str]  # the overrides that asked for it
    parts: tuple[str, ...]
    variants: list[Variant]
    runs: list[StudyRun]
    costs: "Costs"
    compose: Compose
    size: Callable[[Variant], Variant]  # brings a variant to the budget
    search: dict | None = None  # of a search: what its trials came to

    @property
    def folder(self) -> Path:
        return Path("outputs", "studies", self.node["name"])

    def directory(self, run: StudyRun) -> Path:
        return Path(self.node["runs"], run.key)

    def state(self, run: StudyRun) -> State:
        """What has become of a run. One that a search gave up is over only in a search."""
        return state.of(self.directory(run), pruned=self.search is not None)

    @property
    def size_text(self) -> str:
        """How large it is."""
        if self.search is not None:
            runs = f", {len(self.runs)} runs so far" if self.runs else ""
            return f"a search of {self.search['trials']} trials{runs}"
        return f"{len(self.variants)} variants, {len(self.runs)} runs"

    def write(self) -> None:
        """plan.json: what a report is made of, together with the runs that it names."""
        self.folder.mkdir(parents=True, exist_ok=True)
        summary.write(self.plain(), self.folder / PLAN)

    def plain(self) -> dict:
        # By id, because comparing configs would take long.
        at = {id(variant): i for i, variant in enumerate(self.variants)}
        return {
            "study": self.node,
            "pool": os.path.relpath(self.node["runs"], self.folder),
            "command": self.command,
            "parts": list(self.parts),
            "variants": [variant.plain() for variant in self.variants],
            "search": self.search,
            "runs": [
                {"variant": at[id(run.variant)], "seed": run.seed, "key": run.key}
                for run in self.runs
            ],
        }


class Costs:
    """What configs cost. Data are prepared once for each corpus, tokenizer and task."""

    def __init__(self, clock: StepClock | None = None, whole: bool = False) -> None:
        self.known: dict[
            str, tuple[Any, Any, Cost]
        ] = {}  # prepared data, objective, and costs at its vocabulary
        self.clock = clock  # where seconds are asked for
        self.whole = whole  # whether also those that a run takes outside its steps

    def of(self, config: Config) -> tuple[Any, Any, Cost]:
        from tasks.training_data import speaking
        from xformer_kit.data import prepare
        from xformer_kit.objective import objective_of

        asked = [
            config["data"],
            config["tokenizer"],
            config["task"],
            "encoder" in config["model"],
            config["model"]["vocab_size"],
        ]
        key = json.dumps(asked, sort_keys=True, default=str)
        if key not in self.known:
            prepared = prepare(config)
            objective = speaking(objective_of(config), prepared)
            source = objective.source_tokenizer
            vocab = config["model"]["vocab_size"] or prepared.tokenizer.size
            two = None if source is objective.tokenizer else source.size
            self.known[key] = prepared, objective, Cost(vocab, two, objective.given_logits)
        return self.known[key]

    def data(self, config: Config) -> Any:
        from tasks.training_data import TrainingData

        prepared, objective, _ = self.of(config)
        return TrainingData(config, prepared, objective)

    def steps(self, config: Config) -> int:
        return self.data(config).total_steps

    def one(self, config: Config, what: str) -> float:
        """How much a config has of what a budget matches."""
        prepared, _, cost = self.of(config)
        if what == "params":
            return cost.params(config)
        if what == "flops":
            return cost.flops(config, self.steps(config))
        return (
            tokens(config, self.steps(config))
            if what == "tokens"
            else self.steps(config) * self._step(config, prepared)
        )

    def all(self, config: Config) -> dict[str, float]:
        names = ("params", "flops", "tokens", *(() if self.clock is None else ("seconds",)))
        found = {name: self.one(config, name) for name in names}
        prepared, _, cost = self.of(config)
        found |= {"steps": self.steps(config), "flops_per_token": cost.flops_per_token(config)}
        if self.whole and self.clock is not None:
            found["beside"] = self.clock.beside(config, prepared, self.steps(config))
        found["epochs"] = self.steps(config) / self.data(config).batches.steps_per_epoch
        return found

    def _step(self, config: Config, prepared: Any) -> float:
        assert self.clock is not None  # a plan that needs seconds has one
        return self.clock(config, prepared)

    def key(self, config: Config) -> str:
        return run_key(config, self.of(config)[0].fingerprint)


def resolve(
    node: dict, compose: Compose, command: list[str], parts: tuple[str, ...] = ()
) -> StudyPlan:
    """The plan of a complete node. Raises ConfigError where a variant cannot be composed, or not
    brought to the budget.
    """
    in_time = node["budget"]["match"] == "seconds"
    folder = Path("outputs", "studies", node["name"])
    clock = StepClock(folder, LONG if in_time else 0.0) if in_time or node["dry_run"] else None
    costs, found = Costs(clock, node["dry_run"]), variants(node, compose)
    made, faults, targets = [], ladder_steps.faults(found, command), dict[Any, float]()
    if clock is not None and in_time and not faults:
        clock.together([(variant.config, costs.of(variant.config)[0]) for variant in found])
    for variant in [] if faults else found:  # the first of each rung is the baseline
        try:
            if node["budget"]["match"] != "none" and variant.rung not in targets:
                targets[variant.rung] = ladder_steps.cost(
                    variant.config, variant.rung, node["budget"]["match"], costs
                )
            made.append(
                _sized(variant, node["budget"], targets.get(variant.rung, 0.0), costs, compose)
            )
        except ConfigError as error:
            title = titled(variant.label, variant.rung.name if variant.rung else None, ())
            faults += [fault.with_fix(f"[variant {title}]") for fault in error.faults]
    if faults := faults or ladder_steps.unfit(made):
        raise ConfigError(faults)
    if clock is not None and not node["dry_run"]:
        clock.write()
    size = partial(
        _sized, node=node["budget"], target=targets.get(None, 0.0), costs=costs, compose=compose
    )
    made_of = runs(made, node, costs.key)
    if faults := _twins(made_of):
        raise ConfigError(faults)
    return StudyPlan(node, command, parts, made, made_of, costs, compose, size)


def _twins(all_runs: list[StudyRun]) -> list[Fault]:
    """Two entries that are one run: what tells them apart was undone by the budget, or is none of a
    run's settings.
    """
    first, faults = dict[str, Variant](), dict[Fault, None]()
    for run in all_runs:
        other = first.setdefault(run.key, run.variant)
        if other is not run.variant:
            fault = Fault(
                "study.factors",
                f"{run.variant.title} and {other.title} are one and the same run, so there is"
                " nothing to compare",
                fix="Leave one of them out.",
            )
            faults[fault] = None
    return list(faults)


def _sized(variant: Variant, node: dict, target: float, costs: Costs, compose: Compose) -> Variant:
    """A variant with its cost, brought to the budget and to its rung's length where there is
    one.
    """
    long = ladder_steps.with_steps(
        _matched(variant, node, target, costs, compose), node["tolerance"], costs
    )
    return replace(long, cost=costs.all(long.config))


def _matched(
    variant: Variant, node: dict, target: float, costs: Costs, compose: Compose
) -> Variant:
    what = node["match"]
    if what == "none" or variant.label == "baseline":
        return variant

    def refused(config: Config) -> list[Fault]:
        from xformer_kit.config import check

        return check(config, data=False)

    match = budget.matched(
        variant.config,
        target,
        node,
        lambda config: ladder_steps.cost(config, variant.rung, what, costs),
        refused,
    )
    if not match.words:
        return replace(variant, off=match.off)
    rung = variant.rung.words if variant.rung else ()
    config, wrong = compose([*variant.words, *rung, *variant.tuned, *match.words])
    if wrong:
        raise ConfigError(wrong)
    return replace(variant, config=config, knob=match.words, off=match.off)
