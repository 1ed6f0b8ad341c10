"""The options of a study's node, of its budget, and of its rule for stopping."""

from dataclasses import dataclass
from typing import Literal

from xformer_kit.registry import Fault, above, at_least, shown, within
from xformer_kit.study.design import Design
from xformer_kit.study.nodes import Node
from xformer_kit.study.range import SETTINGS


@SETTINGS.register("budget")
@dataclass(frozen=True)
class Budget:
    """What variants have in common, so that their difference is not one of size. `by` is the knob
    that is turned for it.
    """

    # what is made equal to the baseline's
    match: Literal["params", "flops", "tokens", "seconds", "none"] = "none"
    # a size of the model, or trainer.max_steps; null: ffn.width for params, trainer.max_steps else
    by: str | None = None
    tolerance: float = 0.01  # share of the baseline's by which a variant may miss it

    @classmethod
    def check(cls, options, context):
        yield from above(options, "It is a share of the baseline's, such as 0.01.", tolerance=0)
        if (
            options.match != "none"
            and options.by is not None
            and options.by not in KNOBS[options.match]
        ):
            known = ", ".join(KNOBS[options.match])
            yield Fault(
                "by",
                f"is no knob for match={options.match}",
                got=f"{options.by!r}",
                fix=f"Known: {known}.",
            )


@SETTINGS.register("stop")
@dataclass(frozen=True)
class Stop:
    """When a variant is not run at further seeds: it was shown to be worse than the baseline by
    more than a margin.
    """

    after: int = 3  # seeds that every variant is run at
    margin: float | None = None  # difference in the metric; null: that of the study, or 0
    alpha: float = 0.05  # share of studies in which a variant that is no worse than that is stopped

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "seeds", after=2)
        yield from at_least(options, margin=0)
        yield from within(options, alpha=(1e-6, 1))


def seeds(node: Node, first: int = 0) -> list[int]:
    """The seeds of a study's complete node, from `first` on if it gives their number."""
    given = node["seeds"]
    return list(given) if isinstance(given, list) else list(range(first, first + given))


SIZES = ("ffn.width", "model.dim", "model.layers")
STEPS = ("trainer.max_steps",)
KNOBS = {"params": SIZES, "flops": (*STEPS, *SIZES), "tokens": STEPS, "seconds": STEPS, "none": ()}


@SETTINGS.register("study")
@dataclass(frozen=True)
class Study:
    """A question, the runs that answer it, and how they are compared."""

    question: str = ""  # in a sentence; the report's title
    name: str | None = None  # its directory under outputs/studies; null is the name of its file
    # {paper: ..., expect: {variant: ..., is: worse|better|equal|no_worse, than: ...}}
    claim: dict | None = None
    baseline: dict | None = None  # factor -> the level that all others are compared with
    factors: dict | None = None  # factor -> levels
    only: dict | None = None  # factor -> {another factor: levels under which it is varied}
    # combinations of levels that are not run: [{placement: post, norm: dyt}]
    exclude: list | None = None
    labels: dict | None = None  # variant -> how the report calls it
    # one_at_a_time, pairs, factorial, fractional, random, ladder, search
    design: Design = None  # type: ignore[assignment]
    budget: dict | None = None  # {match: params, by: ffn.width, tolerance: 0.01}
    # override -> values: every variant is run with each, and compared at its own best
    tune: dict | None = None
    # {after: 3, margin: 0.1}: variants that are shown to be worse by more are not run on
    stop: dict | None = None
    seeds: int | list[int] = 5  # how many, from `seed` upwards; or which
    metric: str = "val/loss"  # of the end of a run
    # of a metric of one's own; null: as is known of the metric
    higher_is_better: bool | None = None
    # further metrics, whose means and differences are reported without a verdict
    also: list[str] | None = None
    margin: float | None = None  # difference in the metric below which variants count as equal
    max_runs: int = 200  # more are refused
    runs: str = "outputs/runs"  # where runs lie, by their key; studies share them
    # of a search, which several machines may share: sqlite:///FILE, another database's URL, a file
    storage: str | None = None
    retry: bool = False  # run those again that failed or diverged
    log_report: bool = True  # with logger=wandb the report becomes a W&B run in the study's group
    dry_run: bool = False  # print the plan and what it will cost, and stop

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "run", max_runs=1)
        yield from above(options, "null is no margin.", margin=0)
        if options.metric == "":
            yield Fault(
                "metric",
                "must name a metric of the end of a run",
                got="''",
                fix="Leave it out for val/loss.",
            )
        if options.seeds == [] or (isinstance(options.seeds, int) and options.seeds < 1):
            yield Fault(
                "seeds",
                "must be at least 1",
                got=shown(options.seeds),
                fix="Try 5, or a list such as [0, 1, 2].",
            )
        elif isinstance(options.seeds, list) and len(set(options.seeds)) < len(options.seeds):
            yield Fault(
                "seeds",
                "must be different numbers",
                got=options.seeds,
                fix="A run at one seed twice is one run.",
            )
        elif isinstance(options.seeds, list) and min(options.seeds) < 0:
            yield Fault("seeds", "must be at least 0", got=min(options.seeds))
