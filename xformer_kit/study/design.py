"""Designs of experiments: which combinations of levels of the factors are the variants of a study.
The baseline is always one of them.

What a design estimates: `one_at_a_time`, the difference of each change to the baseline; `pairs`,
the interactions of two changes; `factorial` and `fractional`, main effects averaged over the other
factors; `random`, a sample of the whole space; `ladder`, scaling laws; `search`, the best point of
a space, confirmed at seeds that the search did not use.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from xformer_kit.registry import Context, Fault, Options, Registry, at_least
from xformer_kit.study.factor import Factors, Levels
from xformer_kit.study.nodes import Node


@dataclass(frozen=True)
class Rung:
    """A model size, on a ladder with a number of training tokens. `name`: model.dim=96, or
    model.dim=96 x10 for 10 tokens per parameter.
    """

    name: str
    words: tuple[str, ...]  # overrides of the size
    multiple: float | None = None  # tokens per parameter; None: the steps of the config
    steps: int = 0  # optimizer steps for these tokens; 0 until the parameters are counted

    @property
    def overrides(self) -> tuple[str, ...]:
        """The overrides of the size and of the steps."""
        return (
            *self.words,
            *([] if self.multiple is None else [f"trainer.max_steps={self.steps}"]),
        )


class Design:
    """Chooses the variants of a study. A factor whose condition is not met has its baseline level.

    `adaptive`: variants other than the baseline are proposed one after another, depending on the
    results of earlier ones.
    """

    adaptive = False
    # maximum number of variants other than the baseline; None: all chosen ones
    limit: int | None = None

    needs_factors = True
    no_stop = ""  # why study.stop does not support the design; empty if it does

    def choose(self, factors: Factors) -> Iterator[Levels]:
        """Variants other than the baseline, in run order; duplicates are allowed."""
        raise NotImplementedError

    def rungs(self) -> Iterable[Rung]:
        """The sizes at which every variant is run; empty if all have the size of the config."""
        return ()

    def conflicts(self, node: Node, factors: Factors) -> Iterator[Fault]:
        """Faults of factors and settings in the study's complete node that the design does not
        support.
        """
        yield from ()


NO_STOP_OF_AVERAGES = (
    "averages effects over combinations at every seed, so a stopped variant would remove its seeds"
    " from all effects"
)
DESIGNS = Registry("design", base=Design, group="study.design")


def baseline(factors: Factors) -> Levels:
    """The combination in which every factor has its baseline level."""
    return {name: factor.baseline for name, factor in factors.items()}


def single_change(factors: Factors, name: str, label: str) -> Levels:
    """The baseline with one changed level, and with the levels of other factors that its condition
    requires.
    """
    found = baseline(factors) | {name: label}
    for other, wanted in factors[name].when.items():
        if found[other] not in wanted:
            found |= single_change(factors, other, wanted[0]) | {name: label}
    return found


def conditions_met(factors: Factors, levels: Levels) -> bool:
    """Whether the condition of every factor that is not at its baseline is met."""
    return all(
        levels[name] == factor.baseline or factor.active(levels) for name, factor in factors.items()
    )


def condition_order(factors: Factors, baseline_counts: bool = False) -> list[str]:
    """Names of factors in topological order of their conditions, without circular ones.
    baseline_counts: whether a condition that the baseline meets requires no other factor.
    """
    found = dict[str, None]()
    while ready := [
        name
        for name, factor in factors.items()
        if name not in found
        and all(
            other in found or (baseline_counts and factors[other].baseline in labels)
            for other, labels in factor.when.items()
        )
    ]:
        found |= dict.fromkeys(ready)
    return list(found)


def circular_conditions(factors: Factors, baseline_counts: bool = False) -> Iterator[Fault]:
    """The fault of factors that can never leave their baseline; see `condition_order`."""
    ordered = condition_order(factors, baseline_counts)
    if circular := [name for name in factors if name not in ordered]:
        yield Fault(
            "study.only",
            f"the conditions of {' and '.join(circular)} are circular, so none can leave its"
            " baseline",
            fix="Leave one out.",
        )


def design_variants(
    design: Design, factors: Factors, excluded: Sequence[Levels] = ()
) -> list[Levels]:
    """The baseline and the variants of a design, without duplicates and without those that contain
    an excluded combination.
    """
    found = {tuple(baseline(factors).items()): None}
    for levels in design.choose(factors):
        allowed = not any(some.items() <= levels.items() for some in excluded)
        if allowed and conditions_met(factors, levels):
            found.setdefault(tuple(levels.items()))
        if design.limit is not None and len(found) > design.limit:
            break
    return [dict(key) for key in found]


@DESIGNS.register("one_at_a_time", also_called=("ablation", "single", "ofat"))
class OneAtATime(Design):
    """The baseline, and every level of every factor with the other factors at the baseline."""

    def choose(self, factors):
        for name, factor in factors.items():
            for label in factor.changed_labels:
                yield single_change(factors, name, label)


@DESIGNS.register("pairs", also_called=("pairwise", "two_way"))
class PairsDesign(Design):
    """The baseline, every single change, and every pair of changes of two factors: estimates the
    interactions of two changes.
    """

    no_stop = NO_STOP_OF_AVERAGES

    def choose(self, factors):
        yield from OneAtATime().choose(factors)
        for a, b in itertools.combinations(factors, 2):
            for one, two in itertools.product(factors[a].changed_labels, factors[b].changed_labels):
                yield single_change(factors, a, one) | {
                    key: label
                    for key, label in single_change(factors, b, two).items()
                    if label != factors[key].baseline or key == b
                }


@DESIGNS.register("factorial", also_called=("full", "grid", "full_factorial"))
class FactorialDesign(Design):
    """All combinations of all levels."""

    no_stop = NO_STOP_OF_AVERAGES

    def choose(self, factors):
        for labels in itertools.product(*(factor.levels for factor in factors.values())):
            yield dict(zip(factors, labels, strict=True))


@DESIGNS.register("fractional", also_called=("fractional_factorial",))
class FractionalDesign(Design):
    """A regular fraction of the combinations of two-level factors: estimates main effects with
    fewer runs.

    At resolution 3 main effects are not aliased with each other, at 4 also not with two-factor
    interactions, at 5 those are also not aliased with each other (Box, Hunter and Hunter, 2005,
    Statistics for Experimenters, 2nd edition, chapter 6). The library pyDOE computes the fraction;
    the baseline is one of its runs.
    """

    no_stop = NO_STOP_OF_AVERAGES

    def __init__(
        self,
        *,
        resolution: int = 4,  # 3, 4 or 5
    ):
        self.resolution = resolution

    def choose(self, factors):
        from pydoe import fracfact_by_res

        rows = fracfact_by_res(len(factors), self.resolution)
        for row in rows == rows[0]:  # the first row is the baseline
            yield {
                name: factor.baseline if same else factor.changed_labels[0]
                for (name, factor), same in zip(factors.items(), row, strict=True)
            }

    @classmethod
    def check(cls, options: Options, context: Context):
        if options.resolution not in (3, 4, 5):
            yield Fault("resolution", "must be 3, 4 or 5", got=options.resolution, fix="Try 4.")

    def conflicts(self, node, factors):
        several = [name for name, factor in factors.items() if len(factor.levels) != 2]
        conditions = any(factor.when for factor in factors.values())
        if len(factors) < 3 or several or conditions:
            yield Fault(
                "study.design",
                "'fractional' needs at least 3 factors of two levels, the baseline's and one other,"
                " without conditions",
                f"{len(factors)} factors, with several levels of {', '.join(several) or 'none'}",
                "Try design=one_at_a_time or design=factorial.",
            )


@DESIGNS.register("random", also_called=("sample",))
class RandomDesign(Design):
    """`count` different combinations, drawn uniformly from all; all if there are fewer."""

    def __init__(
        self,
        *,
        count: int = 20,  # variants other than the baseline
        seed: int = 0,  # of the draw
    ):
        self.limit = count
        self.seed = seed

    def choose(self, factors):
        """At most 100 * count draws: duplicates and excluded combinations are dropped later."""
        draw = random.Random(self.seed)
        for _ in range(100 * self.limit):
            yield {name: draw.choice(list(factor.levels)) for name, factor in factors.items()}

    @classmethod
    def check(cls, options: Options, context: Context):
        yield from at_least(options, count=1, seed=0)


@DESIGNS.register("search", also_called=("optuna", "bayes", "hyperparameter_search"))
class SearchDesign(Design):
    """The best point of a space: Optuna proposes each trial from the results of earlier ones (Akiba
    et al., 2019, arXiv:1907.10902) with a tree-structured Parzen estimator (Bergstra et al., 2011,
    section 4; Watanabe, 2023, arXiv:2304.11127). Factors can be intervals. Every trial is run at
    the study's first seed. The best are then run at the other seeds, and only those runs are
    compared with the baseline: at the seed of the search, the value of the best of many trials is
    biased by selection.
    """

    adaptive = True
    no_stop = "prunes trials itself (study.design.pruner)"

    def __init__(
        self,
        *,
        trials: int = 30,  # number of trials; the first is the baseline
        sampler: Literal["tpe", "random"] = "tpe",  # proposes trials
        startup: int = 10,  # random trials before the sampler uses results
        # ends trials that are worse than others
        pruner: Literal["median", "successive_halving", "hyperband", "none"] = "median",
        whole: int = 5,  # the first trials, which are never pruned
        warmup: int = 0,  # optimizer steps before which no trial is pruned
        confirm: int = 3,  # best points that are run at the other seeds
        # trials proposed at once; null: as many as the launcher runs in parallel
        together: int | None = None,
    ):
        pass  # tasks/study/search.py and storage.py read the options from the study's node

    def choose(self, factors):
        return iter(())

    @classmethod
    def check(cls, options: Options, context: Context):
        yield from at_least(options, trials=2, startup=0, whole=0, warmup=0, confirm=0)
        if options.together is not None:
            yield from at_least(options, together=1)
        unused = ["whole", "warmup"] if options.pruner == "none" else []
        unused += ["startup"] if options.sampler == "random" else []
        for name in unused:
            if (value := getattr(options, name)) != DESIGNS.defaults("search")[name]:
                rule = f"has no effect with sampler={options.sampler} and pruner={options.pruner}"
                yield Fault(name, rule, value, "Leave it out.")
