"""The runs of a study: variants x seeds. Each run has overrides, the config that they compose, and
a key.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from textwrap import shorten

from xformer_kit.registry import ConfigError, Fault, config_error, suggestion
from xformer_kit.study import claim, noise, sizes
from xformer_kit.study.design import Rung
from xformer_kit.study.factor import Factors, Levels
from xformer_kit.study.nodes import Config, Node
from xformer_kit.study.settings import seeds
from xformer_kit.study.study_node import label, levels_of
from xformer_kit.text.command_lines import override_text

# overrides -> the config, and its faults
Compose = Callable[[list[str]], tuple[Config, list[Fault]]]


@dataclass(frozen=True)
class Variant:
    """One combination of levels, with `tune` at one of its points, and on a ladder at one rung."""

    label: str  # placement=post
    name: str  # in the report
    levels: Levels
    words: tuple[str, ...]  # overrides of the levels, after those of the command line
    config: Config
    tuned: tuple[str, ...] = ()  # overrides of `tune`
    # params, flops, tokens, steps, seconds as far as known
    cost: Mapping[str, float] = None  # type: ignore[assignment]
    knob: tuple[str, ...] = ()  # overrides that match the budget: ffn.width=342
    off: float = 0.0  # relative difference from the budget
    rung: Rung | None = None  # a size
    source: str = ""  # of noise, which its runs vary; empty: all, as in every comparison

    @property
    def overrides(self) -> tuple[str, ...]:
        """All overrides of the variant."""
        size = self.rung.overrides if self.rung else ()
        return (*self.words, *size, *self.tuned, *self.knob)

    def plain(self) -> dict:
        """The entry in plan.json: without the config, which the overrides compose."""
        node = asdict(replace(self, config={}))
        del node["config"]
        return node

    @property
    def title(self) -> str:
        """The unique name of an entry of the plan."""
        return " ".join((self.name, *([self.rung.name] if self.rung else []), *self.tuned))


@dataclass(frozen=True)
class StudyRun:
    """One training run: a variant and a seed. `key` is the name of its directory."""

    variant: Variant
    seed: int
    key: str
    report_to: Node | None = None  # of a trial of a search: its storage, see Job.trial
    seeds: Mapping[str, int] = None  # type: ignore[assignment]  # config key -> seed; None: `seed`

    @property
    def words(self) -> list[str]:
        """All overrides of the run."""
        own = self.seeds or {"seed": self.seed}
        return [*self.variant.overrides, *(f"{key}={value}" for key, value in own.items())]

    @property
    def config(self) -> Config:
        return with_seeds(self.variant.config, self.seeds or {"seed": self.seed})


def variants(node: Node, compose: Compose) -> list[Variant]:
    """The variants of a study's complete node, composed and checked, the baseline first.

    Raises ConfigError with the faults of all variants, or if there are too many runs.
    """
    factors, chosen = levels_of(node)
    found, wrong = [], dict[Fault, list[str]]()  # fault -> the variants that have it
    rungs: list[Rung | None] = [*sizes.rungs(node)] or [None]
    needed = len(chosen) * len(rungs) * len(tunings(node)) * len(seeds(node))
    needed += len(noise.sources(node)) * (len(seeds(node)) - 1)
    if needed > node["max_runs"]:
        raise config_error(
            "study.max_runs",
            f"must hold the {needed} runs of the design",
            node["max_runs"],
            "Raise it, or take fewer seeds or levels.",
        )
    for levels in chosen:
        variant = label(factors, levels)
        name, words = name_of(node, variant), words_of(factors, levels)
        # Rungs of one size share a config until their steps are counted.
        configs: dict[tuple[str, ...], Config] = {}
        for rung, tuned in product(rungs, tunings(node)):
            size = (*(rung.words if rung else ()), *tuned)
            if size not in configs:
                configs[size], faults = compose([*words, *size])
                for fault in faults:
                    wrong.setdefault(fault, []).append(" ".join((variant, *size)))
            found.append(
                Variant(variant, name, levels, tuple(words), configs[size], tuned, rung=rung)
            )
    faults = [
        fault.with_fix(f"[variant {shorten(' and '.join(names), 120)}]")
        for fault, names in wrong.items()
    ]
    faults += [*_label_faults(node, found), *_claim_faults(node, found)]
    faults += noise.config_faults(node, found[0].config)
    if faults:
        raise ConfigError(dict.fromkeys(faults))
    return found


def name_of(node: Node, label: str) -> str:
    """The name of a variant in the report."""
    return str((node["labels"] or {}).get(label, label))


def words_of(factors: Factors, levels: Levels) -> list[str]:
    """The overrides of a combination; factors whose condition is not met have none."""
    return [
        word
        for name, factor in factors.items()
        if factor.active(levels)
        for word in factor.words(levels[name])
    ]


def tunings(node: Node) -> list[tuple[str, ...]]:
    """The overrides of each point of `tune`; one empty tuple without `tune`."""
    tune = node["tune"] or {}
    return list(
        product(*([f"{key}={override_text(x)}" for x in values] for key, values in tune.items()))
    )


def runs(found: list[Variant], node: Node, key: Callable[[Config], str]) -> list[StudyRun]:
    """All runs, sorted by seed, so that an interrupted study has all variants at the same seeds. A
    source of noise is varied from the second seed on: the first is the run of the baseline.
    """
    first, *others = seeds(node, found[0].config["seed"])
    return [
        StudyRun(variant, seed, key(with_seeds(variant.config, own)), seeds=own)
        for seed in (first, *others)
        for variant in found
        if seed != first or not variant.source
        for own in [noise.seed_values(variant.source, first, seed)]
    ]


def with_seeds(config: Config, values: Mapping[str, int]) -> Config:
    """The config with these seeds, such as {"seed": 0, "data.seed": 1}."""
    changed = dict(config)
    for path, value in values.items():
        group, _, key = path.rpartition(".")
        changed[group or key] = {**changed[group], key: value} if group else value
    return changed


def _label_faults(node: Node, found: list[Variant]) -> Iterator[Fault]:
    """Faults of study.labels: of unknown variants, and names that are used twice."""
    names = {one.label: one.name for one in found}
    for name, count in Counter(names.values()).items():
        if count > 1:
            twice = " and ".join(label for label, other in names.items() if other == name)
            rule = f"{twice} are both called {name!r}"
            yield Fault("study.labels", rule, fix="Give each a name of its own.")
    for variant in node["labels"] or {}:
        if variant not in names:
            fix = suggestion(variant, names)
            yield Fault(f"study.labels.{variant}", "is no variant", fix=fix)


def _claim_faults(node: Node, found: list[Variant]) -> list[Fault]:
    """Faults of study.claim, which names variants by label or by name."""
    claim_node = node["claim"] or {}
    if unknown := sorted(claim_node.keys() - {"paper", "expect"}):
        rule = "is no part of a claim, which has paper and expect"
        return [Fault(f"study.claim.{unknown[0]}", rule, fix="Leave it out.")]
    expect = claim_node.get("expect") or []
    names = dict.fromkeys([*(v.label for v in found), *(v.name for v in found)])
    if wrong := claim.faults(expect, names):
        return [fault.with_fix("Or study without a claim: study.claim=null.") for fault in wrong]
    relations = {one["is"] for one in claim.expectations(expect)}
    within = sorted(relations & claim.WITHIN_MARGIN)
    if within and not node["margin"]:
        rule = f"must be set, because the claim expects '{within[0]}'"
        return [Fault("study.margin", rule, None, "Try 0.05.")]
    return []
