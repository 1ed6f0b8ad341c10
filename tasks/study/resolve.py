"""Resolves the plan of a study: prepares data, counts sizes, and matches budgets."""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tasks.logging import startup, summary
from tasks.study import ladder_steps, state
from tasks.study.external import ExternalCosts
from tasks.study.saved_plan import PLAN, read_plan
from tasks.study.state import State
from tasks.study.timing import StepClock
from xformer_kit.config.faults.result_names import result_names
from xformer_kit.inspect.cost import Cost, tokens
from xformer_kit.metrics import VAL, known_metric
from xformer_kit.objective import OBJECTIVES, PER_TOKEN
from xformer_kit.registry import ConfigError, Fault
from xformer_kit.study import budget, noise
from xformer_kit.study.design import DESIGNS, Rung
from xformer_kit.study.nodes import Config, Node
from xformer_kit.study.plan import Compose, StudyRun, Variant, runs, variants
from xformer_kit.study.run_key import run_key
from xformer_kit.study.study_node import result_faults


@dataclass
class StudyPlan:
    """The variants and runs of a study, with their directories."""

    node: dict  # complete `study` node
    command: list[str]  # overrides of the command line
    components: tuple[str, ...]
    variants: list[Variant]
    runs: list[StudyRun]
    costs: Any  # Costs, or ExternalCosts of commands
    compose: Compose
    size: Callable[[Variant], Variant]  # matches the budget and counts costs
    search: dict | None = None  # state of a search; None for other designs

    @property
    def folder(self) -> Path:
        return Path("outputs", "studies", self.node["name"])

    def directory(self, run: StudyRun) -> Path:
        return Path(self.node["runs"], run.key)

    def state(self, run: StudyRun) -> State:
        """Returns the state of a run. A pruned run has ended only in a search."""
        return state.of(self.directory(run), pruned=self.search is not None)

    @property
    def adaptive(self) -> bool:
        """Whether runs follow from the results of others, as in a search."""
        return bool(DESIGNS[self.node["design"]["name"]].adaptive)

    @property
    def size_text(self) -> str:
        """The number of variants and runs, or of trials, for the terminal."""
        if self.search is not None:
            runs = f", {len(self.runs)} runs so far" if self.runs else ""
            return f"a search of {self.search['trials']} trials{runs}"
        return f"{len(self.variants)} variants, {len(self.runs)} runs"

    def write(self) -> None:
        """Writes plan.json, from which the report is made together with the directories of runs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        summary.write(self.plain(), self.folder / PLAN)

    def replacement_note(self) -> str:
        """The sentence on a report of other runs that lies in the study's directory and will be
        replaced; "" if there is none, or a run of it belongs to this plan, too.
        """
        if not (self.folder / "report.md").is_file():
            return ""
        try:
            before = {run["key"] for run in read_plan(self.folder)["runs"]}
        except ConfigError:  # none, or a damaged one
            return ""
        if not before.isdisjoint(run.key for run in self.runs):
            return ""
        return (
            f"{self.folder} has a report of other runs, which this study replaces; the runs are"
            " kept. To keep both, set study.name=NAME."
        )

    def plain(self) -> dict:
        """Returns the content of plan.json."""
        # By id, because comparing configs is slow.
        index = {id(variant): i for i, variant in enumerate(self.variants)}
        return {
            "study": self.node,
            "pool": os.path.relpath(self.node["runs"], self.folder),
            "command": self.command,
            "components": list(self.components),
            "variants": [variant.plain() for variant in self.variants],
            "search": self.search,
            "runs": [
                {"variant": index[id(run.variant)], "seed": run.seed, "key": run.key}
                for run in self.runs
            ],
        }


@dataclass
class Costs:
    """Computes the costs of configs. Data are prepared once per corpus, tokenizer and task."""

    clock: StepClock | None = None  # set if seconds are needed
    # data, tokenizer and task as JSON -> (prepared data, objective, Cost)
    known: dict[str, tuple[Any, Any, Cost]] = field(default_factory=dict)

    def of(self, config: Config) -> tuple[Any, Any, Cost]:
        """Returns (prepared data, objective, Cost) of a config."""
        from xformer_kit.data import prepare
        from xformer_kit.init_source import objective_for

        parts = [
            config["data"],
            config["tokenizer"],
            config["task"],
            "encoder" in config["model"],
            config["model"]["vocab_size"],
            (config.get("init_from") or {}).get("run"),
        ]
        key = json.dumps(parts, sort_keys=True, default=str)
        if key not in self.known:
            prepared = prepare(config)
            objective = objective_for(config, prepared)
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
        """Returns the TrainingData of a config."""
        from xformer_kit.data.preparation.training_data import TrainingData

        prepared, objective, _ = self.of(config)
        return TrainingData(config, prepared, objective)

    def steps(self, config: Config) -> int:
        """Returns the optimizer steps of a run."""
        return self.data(config).total_steps

    def cost(self, config: Config, name: str) -> float:
        """Returns the cost `name` of a config: params, flops, tokens or seconds."""
        cost = self.of(config)[2]
        if name == "params":
            return cost.params(config)
        steps = self.steps(config)
        if name == "flops":
            return cost.flops(config, steps)
        if name == "tokens":
            return tokens(config, steps)
        return steps * self.clock(config)

    def all(self, config: Config) -> dict[str, float]:
        """Returns all costs of a config, by name: params, flops, tokens, steps, flops_per_token and
        epochs; with a clock also seconds and overhead, those of steps and of validations.
        """
        names = ("params", "flops", "tokens", *(["seconds"] if self.clock else []))
        costs = {name: self.cost(config, name) for name in names}
        cost, data = self.of(config)[2], self.data(config)
        steps = data.total_steps
        costs |= {"steps": steps, "flops_per_token": cost.flops_per_token(config)}
        if self.clock:
            every = config["trainer"].get("val_every")
            validations = math.ceil(steps / every) if every else 1
            costs["overhead"] = validations * self.clock.validation(config, data)
        costs["epochs"] = steps / data.batches.steps_per_epoch
        return costs

    def key(self, config: Config) -> str:
        """Returns the run key of a config."""
        from xformer_kit.init_source import weights_of

        return run_key(config, self.of(config)[0].fingerprint, weights_of(config))


def resolve(
    node: dict,
    compose: Compose,
    command: list[str],
    components: tuple[str, ...] = (),
    timing: Any = None,
) -> StudyPlan:
    """Returns the plan of a complete node. timing: tasks.run.trial_run, for a dry run and for a
    budget of seconds. Raises ConfigError if a variant cannot be composed, or its budget cannot be
    matched.
    """
    by_seconds, dry_run = node["budget"]["match"] == "seconds", node["dry_run"]
    folder, clock = Path("outputs", "studies", node["name"]), None
    if by_seconds or (dry_run and node["command"] is None):
        clock = StepClock(folder, timing.step_seconds)
    costs: Any = Costs(clock) if node["command"] is None else ExternalCosts()
    unsized = variants(node, _with_result_faults(node, compose))
    if faults := [*ladder_steps.faults(unsized, command), *_tokenizer_faults(node, unsized)]:
        raise ConfigError(faults)
    if by_seconds:
        clock.measure_all([variant.config for variant in unsized])
    sized, size = [], Sizing(node["budget"], costs, compose)
    for number, variant in enumerate(unsized, 1):
        startup.show(f"Planning variant {number} of {len(unsized)}", plain=False)
        try:
            sized.append(size(variant))
        except ConfigError as error:
            faults += [fault.with_fix(f"[variant {variant.title}]") for fault in error.faults]
    startup.clear()
    if faults := faults or ladder_steps.law_faults(sized, node["forecast"]):
        raise ConfigError(faults)
    if by_seconds and not dry_run:
        clock.write()
    if varied := noise.sources(node):
        base = [variant for variant in sized if variant.label == "baseline"]
        largest = max(base, key=lambda variant: variant.cost["flops"])
        sized += [noise.variant_of(largest, source) for source in varied]
    planned_runs = runs(sized, node, costs.key)
    if faults := _duplicate_faults(node, planned_runs):
        raise ConfigError(faults)
    return StudyPlan(node, command, components, sized, planned_runs, costs, compose, size)


def _with_result_faults(node: Node, compose: Compose) -> Compose:
    """Returns `compose` with the faults of metrics of the study that a run does not have."""

    def composed(words: list[str]) -> tuple[Config, list[Fault]]:
        config, faults = compose(words)
        known = faults or node["command"] is not None
        return config, faults if known else list(result_faults(node, config))

    return composed


def _tokenizer_faults(node: Node, planned: Sequence[Variant]) -> Iterator[Fault]:
    """Yields the fault of a metric per token of variants that differ in their tokenizer."""
    if node["command"] is not None:
        return
    config, *others = (variant.config for variant in planned)
    per_token = OBJECTIVES[config["task"]["name"]].loss_unit == PER_TOKEN
    if not per_token or not ((known := known_metric(node["metric"])) and known.per_token):
        return
    is_factor = any(path.partition(".")[0] == "tokenizer" for path in node["factors"] or ())
    if is_factor or any(other["tokenizer"] != config["tokenizer"] for other in others):
        by_bytes = f"{VAL}bits_per_byte"
        fix = by_bytes if by_bytes in result_names(config) else f"{VAL}exact_match"
        rule = "a loss per token does not compare between tokenizers, in which the variants differ"
        yield Fault("study.metric", rule, node["metric"], f"Try study.metric={fix}.")


def _duplicate_faults(node: Node, all_runs: list[StudyRun]) -> list[Fault]:
    """Returns the faults of variants with the same run key: their difference was overridden by the
    budget, or does not affect training.
    """
    first: dict[str, Variant] = {}
    pairs = [(run.variant, first.setdefault(run.key, run.variant)) for run in all_runs]
    size = "study.sizes" if node["sizes"] else "study.design.sizes"
    paths = {
        f"{one.title} and {other.title} are the same run, so there is nothing to compare": (
            size if one.label == other.label else "study.factors"
        )
        for one, other in pairs
        if one is not other
    }
    fix = (
        "Leave one of them out with study.exclude; the seed and study.budget.by are set for every"
        " variant."
    )
    return [Fault(path, rule, fix=fix) for rule, path in paths.items()]


@dataclass
class Sizing:
    """Matches the budget of variants, and sets the steps of their rung. The first variant of each
    rung is the baseline.
    """

    budget: Node
    costs: Costs
    compose: Compose
    targets: dict[Rung | None, float] = field(default_factory=dict)

    def __call__(self, variant: Variant) -> Variant:
        """Returns the variant with its costs. Raises ConfigError if no budget can be matched."""
        if self.budget["match"] != "none":
            if variant.rung not in self.targets:
                self.targets[variant.rung] = self._cost(variant.rung, variant.config)
            if variant.label != "baseline":
                variant = self._matched(variant)
        variant = ladder_steps.with_steps(variant, self.budget["tolerance"], self.costs)
        return replace(variant, cost=self.costs.all(variant.config))

    def _cost(self, rung: Rung | None, config: Config) -> float:
        """Returns the cost of a config that the budget matches, with the steps of its rung."""
        name = self.budget["match"]
        if rung and rung.multiple is not None and name != "params":
            config, _ = ladder_steps.with_tokens(config, rung, self.costs)
        return self.costs.cost(config, name)

    def _matched(self, variant: Variant) -> Variant:
        """Returns the variant with one option of its config changed so that it costs as much as the
        baseline of its rung, within the tolerance. Raises ConfigError if no value does.
        """
        from xformer_kit.config import check

        match = budget.match_budget(
            variant.config,
            self.targets[variant.rung],
            self.budget,
            partial(self._cost, variant.rung),
            partial(check, data=False),
        )
        if not match.words:
            return replace(variant, off=match.off)
        rung = variant.rung.words if variant.rung else ()
        config, faults = self.compose([*variant.words, *rung, *variant.tuned, *match.words])
        if faults:
            raise ConfigError(faults)
        return replace(variant, config=config, knob=match.words, off=match.off)
