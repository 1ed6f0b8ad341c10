"""Designs: which variants answer the question. A design chooses among the levels of the factors;
the baseline is always one of them.

The statistics that a design allows: `one_at_a_time` gives the difference of each change to the
baseline; `pairs`, whether two changes add up; `factorial` and `fractional`, the mean effect of a
change over all others; `random`, a sample of the whole space; `ladder`, how the loss falls with
size and data; `search`, the best point of a space, confirmed at seeds of which the search knew
nothing.
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
    """A size, and how long it is trained. `name`: model.dim=96 x10, ten tokens for each
    parameter.
    """

    name: str
    words: tuple[str, ...]  # overrides of the size
    multiple: float  # tokens for each parameter
    steps: int = 0  # optimizer steps that make so many tokens; 0 until the parameters are counted


class Design:
    """The variants of a study. Levels that a condition rules out are those of the baseline.

    `adaptive`: variants other than the baseline are proposed one after another, from what became of
    those before.
    """

    adaptive = False
    # variants other than the baseline that are taken of those chosen; None: all
    limit: int | None = None

    needs_factors = True
    no_stop = ""  # why study.stop cannot leave seeds of a variant out

    def choose(self, factors: Factors) -> Iterator[Levels]:
        """Variants other than the baseline, in the order in which they run; one may come twice."""
        raise NotImplementedError

    @classmethod
    def cannot(cls, factors: Factors) -> str | None:
        """Why the design cannot vary these factors."""
        return None

    def rungs(self) -> Iterable[Rung]:
        """The sizes at which every variant is run; none where all have the one of the config."""
        return ()

    def clashes(self, node: Node, factors: Factors) -> Iterator[str]:
        """What else in a study's complete node contradicts the design, as sentences with their
        config path.
        """
        yield from ()


AVERAGES = (
    "averages effects over combinations at every seed, of which one that is stopped would take its"
    " seeds from all"
)
DESIGNS = Registry("design", base=Design, group="study.design")


def baseline(factors: Factors) -> Levels:
    return {name: factor.baseline for name, factor in factors.items()}


def alone(factors: Factors, name: str, label: str) -> Levels:
    """One change to the baseline, with the levels of other factors without which it cannot be
    made.
    """
    found = baseline(factors) | {name: label}
    for other, wanted in factors[name].when.items():
        if found[other] not in wanted:
            found |= alone(factors, other, wanted[0]) | {name: label}
    return found


def met(factors: Factors, levels: Levels) -> bool:
    """Whether every factor that left its baseline may do so."""
    return all(
        levels[name] == factor.baseline or factor.active(levels) for name, factor in factors.items()
    )


def stuck(factors: Factors) -> list[str]:
    """Factors that wait for each other: each may leave its baseline only when another one has."""
    free = dict[str, None]()
    for _ in factors:
        free |= dict.fromkeys(
            name
            for name, factor in factors.items()
            if all(
                other in free or factors[other].baseline in wanted
                for other, wanted in factor.when.items()
            )
        )
    return [name for name in factors if name not in free]


def distinct(design: Design, factors: Factors, left_out: Sequence[Levels] = ()) -> list[Levels]:
    """The baseline and the variants that a design chooses, each once, but for those that have what
    is left out.
    """
    found = {tuple(baseline(factors).items()): None}
    for levels in design.choose(factors):
        if met(factors, levels) and not any(some.items() <= levels.items() for some in left_out):
            found.setdefault(tuple(levels.items()))
        if design.limit is not None and len(found) > design.limit:
            break
    return [dict(key) for key in found]


@DESIGNS.register("one_at_a_time", also_called=("ablation", "single", "ofat"))
class OneAtATime(Design):
    """The baseline, and every level of every factor by itself."""

    def choose(self, factors):
        for name, factor in factors.items():
            for label in factor.others:
                yield alone(factors, name, label)


@DESIGNS.register("pairs", also_called=("pairwise", "two_way"))
class PairsDesign(Design):
    """The baseline, every level by itself, and every two levels of two factors together: which
    changes do not add up.
    """

    no_stop = AVERAGES

    def choose(self, factors):
        yield from OneAtATime().choose(factors)
        for a, b in itertools.combinations(factors, 2):
            for one, two in itertools.product(factors[a].others, factors[b].others):
                yield alone(factors, a, one) | {
                    key: label
                    for key, label in alone(factors, b, two).items()
                    if label != factors[key].baseline or key == b
                }


@DESIGNS.register("factorial", also_called=("full", "grid", "full_factorial"))
class FactorialDesign(Design):
    """All combinations of all levels."""

    no_stop = AVERAGES

    def choose(self, factors):
        for labels in itertools.product(*(factor.levels for factor in factors.values())):
            yield dict(zip(factors, labels, strict=True))


@DESIGNS.register("fractional", also_called=("fractional_factorial",))
class FractionalDesign(Design):
    """A regular fraction of the combinations of factors of two levels: main effects at a part of
    the runs.

    At resolution 3 main effects are clear of each other, at 4 also of interactions of two, at 5
    those of each other too (Box, Hunter and Hunter, 2005, Statistics for Experimenters, 2nd
    edition, chapter 6). The library pyDOE chooses the fraction, so that the baseline is one of its
    runs.
    """

    no_stop = AVERAGES

    def __init__(
        self,
        *,
        resolution: int = 4,  # 3, 4 or 5
    ):
        self.resolution = resolution

    def choose(self, factors):
        from pydoe import fracfact_by_res

        rows = fracfact_by_res(len(factors), self.resolution)
        for row in rows == rows[0]:  # the first row is the baseline: signs are names of levels
            yield {
                name: factor.baseline if same else factor.others[0]
                for (name, factor), same in zip(factors.items(), row, strict=True)
            }

    def clashes(self, node, factors):
        every = 2 ** len(factors)
        if len(list(self.choose(factors))) == every:
            yield Fault(
                "study.design.resolution",
                "must leave combinations out",
                got=f"{self.resolution}, at which {len(factors)} factors need all {every}",
                fix="Try design=factorial, or a lower resolution.",
            )

    @classmethod
    def check(cls, options: Options, context: Context):
        if options.resolution not in (3, 4, 5):
            yield Fault("resolution", "must be 3, 4 or 5", got=options.resolution, fix="Try 4.")

    @classmethod
    def cannot(cls, factors):
        if several := [name for name, factor in factors.items() if len(factor.levels) != 2]:
            return (
                f"needs factors of two levels, the baseline's and one other; {several[0]} has"
                f" {len(factors[several[0]].levels)}"
            )
        if len(factors) < 3:
            return f"needs at least 3 factors, of which a fraction can be taken; got {len(factors)}"
        if any(factor.when for factor in factors.values()):
            return "needs factors without conditions: a fraction counts on all its combinations"
        return None


@DESIGNS.register("random", also_called=("sample",))
class RandomDesign(Design):
    """So many different combinations, drawn evenly from all."""

    def __init__(
        self,
        *,
        count: int = 20,  # variants other than the baseline
        seed: int = 0,  # of the draw
    ):
        self.limit = count
        self.seed = seed

    def choose(self, factors):
        """More than are taken, for some may be left out; after a hundred times as many none is new
        any more.
        """
        draw = random.Random(self.seed)
        for _ in range(100 * self.limit):
            yield {name: draw.choice(list(factor.levels)) for name, factor in factors.items()}

    @classmethod
    def check(cls, options: Options, context: Context):
        yield from at_least(options, count=1, seed=0)


@DESIGNS.register("search", also_called=("optuna", "bayes", "hyperparameter_search"))
class SearchDesign(Design):
    """The best point of a space: Optuna proposes, from what became of the points before (Akiba et
    al., 2019, arXiv:1907.10902), by a tree-structured Parzen estimator (Bergstra et al., 2011,
    section 4; Watanabe, 2023, arXiv:2304.11127). Factors can be intervals. Every trial is run at
    the study's first seed; the best are then run at the other seeds, and only these are compared
    with the baseline's: a point that was chosen among many at one seed owes a part of its figure to
    that seed.
    """

    adaptive = True
    no_stop = "ends hopeless trials by itself (study.design.pruner)"

    def __init__(
        self,
        *,
        trials: int = 30,  # points that are tried, the baseline first
        sampler: Literal["tpe", "random"] = "tpe",  # who proposes
        startup: int = 10,  # trials before the sampler learns from them
        pruner: Literal[
            "median", "successive_halving", "hyperband", "none"
        ] = "median",  # who ends hopeless trials
        whole: int = 5,  # trials, the first, that are never ended early
        warmup: int = 0,  # optimizer steps before which no trial is ended
        confirm: int = 3,  # of the best points, run at the other seeds
        together: (
            int | None
        ) = None,  # trials proposed at once; null: as many as the launcher runs side by side
    ):
        pass  # read from the study's node where trials are proposed and trained

    def choose(self, factors):
        return iter(())

    @classmethod
    def check(cls, options: Options, context: Context):
        yield from at_least(options, trials=2, startup=0, whole=0, warmup=0, confirm=0)
        if options.together is not None:
            yield from at_least(options, together=1)
        idle = dict.fromkeys(("whole", "warmup"), "without a pruner")
        idle = idle if options.pruner == "none" else {}
        if options.sampler == "random":
            idle["startup"] = "with sampler=random, which learns nothing"
        usual = {"whole": 5, "warmup": 0, "startup": 10}
        for name, why in idle.items():
            if (given := getattr(options, name)) != usual[name]:
                yield Fault(name, f"has no effect {why}", got=given, fix="Leave it out.")
