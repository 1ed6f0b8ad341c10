"""The resolved plan of a study: a plan whose data are read, whose sizes are counted, and whose
budget is met.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from xformer_kit.study.design import Rung
from xformer_kit.study.key import run_key
from xformer_kit.study.nodes import Config, Node
from xformer_kit.study.plan import Compose, StudyRun, Variant, runs, titled, variants

PLAN = "plan.json"


@dataclass
class StudyPlan:
    """The runs of a study, and where they lie."""

    node: dict  # of the study, complete
    command: list[str]  # the overrides that asked for it
    components: tuple[str, ...]
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
            "components": list(self.components),
            "variants": [variant.plain() for variant in self.variants],
            "search": self.search,
            "runs": [
                {"variant": at[id(run.variant)], "seed": run.seed, "key": run.key}
                for run in self.runs
            ],
        }


@dataclass
class Costs:
    """What configs cost. Data are prepared once for each corpus, tokenizer and task."""

    clock: StepClock | None = None  # where seconds are asked for
    whole: bool = False  # whether also those that a run takes outside its steps
    # prepared data, objective, and costs at its vocabulary
    known: dict[str, tuple[Any, Any, Cost]] = field(default_factory=dict)

    def of(self, config: Config) -> tuple[Any, Any, Cost]:
        from xformer_kit.data import prepare
        from xformer_kit.data.training_data import attach_tokenizers
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
            objective = attach_tokenizers(objective_of(config), prepared)
            source = objective.source_tokenizer
            self.known[key] = (
                prepared,
                objective,
                Cost(
                    config["model"]["vocab_size"] or prepared.tokenizer.size,
                    None if source is objective.tokenizer else source.size,
                    objective.given_logits,
                ),
            )
        return self.known[key]

    def data(self, config: Config) -> Any:
        from xformer_kit.data.training_data import TrainingData

        prepared, objective, _ = self.of(config)
        return TrainingData(config, prepared, objective)

    def steps(self, config: Config) -> int:
        return self.data(config).total_steps

    def one(self, config: Config, what: str) -> float:
        """How much a config has of what a budget matches."""
        prepared, _, cost = self.of(config)
        if what == "params":
            return cost.params(config)
        steps = self.steps(config)
        if what == "flops":
            return cost.flops(config, steps)
        if what == "tokens":
            return tokens(config, steps)
        return steps * self.clock(config, prepared)  # a plan that needs seconds has a clock

    def all(self, config: Config) -> dict[str, float]:
        names = ("params", "flops", "tokens", *(["seconds"] if self.clock else []))
        found = {name: self.one(config, name) for name in names}
        (prepared, _, cost), data = self.of(config), self.data(config)
        steps = data.total_steps
        found |= {"steps": steps, "flops_per_token": cost.flops_per_token(config)}
        if self.whole and self.clock:
            found["beside"] = self.clock.beside(config, prepared, steps)
        found["epochs"] = steps / data.batches.steps_per_epoch
        return found

    def key(self, config: Config) -> str:
        return run_key(config, self.of(config)[0].fingerprint)


def resolve(
    node: dict, compose: Compose, command: list[str], components: tuple[str, ...] = ()
) -> StudyPlan:
    """The plan of a complete node. Raises ConfigError where a variant cannot be composed, or not
    brought to the budget.
    """
    in_time, dry_run = node["budget"]["match"] == "seconds", node["dry_run"]
    folder = Path("outputs", "studies", node["name"])
    clock = StepClock(folder, LONG if in_time else 0.0) if in_time or dry_run else None
    costs, found = Costs(clock, dry_run), variants(node, compose)
    if faults := ladder_steps.faults(found, command):
        raise ConfigError(faults)
    if in_time:
        clock.together([(variant.config, costs.of(variant.config)[0]) for variant in found])
    made, size = [], Sizing(node["budget"], costs, compose)
    for variant in found:
        try:
            made.append(size(variant))
        except ConfigError as error:
            title = titled(variant.label, variant.rung, ())
            faults += [fault.with_fix(f"[variant {title}]") for fault in error.faults]
    if faults := faults or ladder_steps.unfit(made):
        raise ConfigError(faults)
    if in_time and not dry_run:
        clock.write()
    made_of = runs(made, node, costs.key)
    if faults := _twins(made_of):
        raise ConfigError(faults)
    return StudyPlan(node, command, components, made, made_of, costs, compose, size)


def _twins(all_runs: list[StudyRun]) -> list[Fault]:
    """Two entries that are one run: what tells them apart was undone by the budget, or is none of a
    run's settings.
    """
    first: dict[str, Variant] = {}
    pairs = [(run.variant, first.setdefault(run.key, run.variant)) for run in all_runs]
    rules = dict.fromkeys(
        f"{one.title} and {other.title} are one and the same run, so there is nothing to compare"
        for one, other in pairs
        if one is not other
    )
    return [Fault("study.factors", rule, fix="Leave one of them out.") for rule in rules]


@dataclass
class Sizing:
    """Brings variants to the budget, and to the length of their rung if there is one. The first
    variant of each rung is the baseline.
    """

    budget: Node
    costs: Costs
    compose: Compose
    targets: dict[Rung | None, float] = field(default_factory=dict)

    def __call__(self, variant: Variant) -> Variant:
        """The variant with its cost. Raises ConfigError if it cannot be brought to the budget."""
        if self.budget["match"] != "none":
            if variant.rung not in self.targets:
                self.targets[variant.rung] = self._cost(variant.rung, variant.config)
            if variant.label != "baseline":
                variant = self._matched(variant)
        variant = ladder_steps.with_steps(variant, self.budget["tolerance"], self.costs)
        return replace(variant, cost=self.costs.all(variant.config))

    def _cost(self, rung: Rung | None, config: Config) -> float:
        return ladder_steps.cost(config, rung, self.budget["match"], self.costs)

    def _matched(self, variant: Variant) -> Variant:
        from xformer_kit.config import check

        match = budget.matched(
            variant.config,
            self.targets[variant.rung],
            self.budget,
            partial(self._cost, variant.rung),
            partial(check, data=False),
        )
        if not match.words:
            return replace(variant, off=match.off)
        rung = variant.rung.words if variant.rung else ()
        config, wrong = self.compose([*variant.words, *rung, *variant.tuned, *match.words])
        if wrong:
            raise ConfigError(wrong)
        return replace(variant, config=config, knob=match.words, off=match.off)
