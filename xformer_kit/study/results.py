"""The results of a study's runs, as plain data for statistics and reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from xformer_kit.study.metric import Metric, metric_of
from xformer_kit.study.nodes import Node

Status = Literal[
    "finished", "diverged", "failed", "pruned", "running", "stopped", "open", "left out"
]
STATUS_NAMES = {"stopped": "interrupted", "open": "not started"}  # in texts; others are the same


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run. facts: its summary.json; curves: metric -> (steps, values)."""

    variant: int  # index of the variant
    seed: int
    key: str
    status: Status
    directory: str
    step: int | None = None  # step at which it diverged, or its last step
    why: str = ""  # why it did not finish, in one sentence
    facts: Node = field(default_factory=dict)
    curves: Mapping[str, tuple[list[int], list[float]]] = field(default_factory=dict)


def rung_name(variant: Node) -> str | None:
    """The rung of an entry of the plan; None if the study has no ladder."""
    return (variant.get("rung") or {}).get("name")


def title(variant: Node) -> str:
    """The unique name of an entry of the plan: variant, rung and tuning."""
    return " ".join(filter(None, (variant["name"], rung_name(variant), *variant["tuned"])))


@dataclass(frozen=True)
class Results:
    """plan.json of a study, with the outcome of every run."""

    study: Node  # the study's complete node
    command: list[str]  # overrides of the command line
    components: list[str]  # files of the user's own components
    # label, name, levels, words, tuned, cost, knob, off; the baseline first
    variants: list[Node]
    outcomes: list[Outcome]
    # state of a search; see tasks/study/search.py
    search: Node | None = None
    # label -> sentence on why study.stop stopped the variant
    stopped: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""  # the study's directory
    forecast: Node | None = None  # content of forecast.json, which study.forecast writes

    @property
    def metric(self) -> Metric:
        """The metric by which variants are compared. Raises ConfigError if it is unknown whether
        higher is better.
        """
        return metric_of(self.study)

    @property
    def seeds(self) -> list[int]:
        """Seeds in the study's order."""
        return list(dict.fromkeys(one.seed for one in self.outcomes))

    @property
    def claim(self) -> Node:
        return self.study.get("claim") or {}

    def select_variants(
        self, kept: Sequence[int], outcomes: Iterable[Outcome] | None = None
    ) -> "Results":
        """The results of the variants with these indices, in this order."""
        index = {old: new for new, old in enumerate(kept)}
        return replace(
            self,
            variants=[self.variants[i] for i in kept],
            outcomes=[
                replace(o, variant=index[o.variant])
                for o in (self.outcomes if outcomes is None else outcomes)
                if o.variant in index
            ],
        )

    def label(self, one: Outcome) -> str:
        """The label of a run's variant."""
        return self.variants[one.variant]["label"]

    def outcomes_of(self, variant: int) -> list[Outcome]:
        """The runs of a variant, sorted by seed."""
        return sorted((o for o in self.outcomes if o.variant == variant), key=lambda o: o.seed)
