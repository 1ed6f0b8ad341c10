"""The options of a study, of its budget, and of its rule for early stopping."""

from dataclasses import dataclass
from typing import Literal

from xformer_kit.metrics import VAL_LOSS
from xformer_kit.registry import Fault, above, at_least, in_range
from xformer_kit.study.design import Design
from xformer_kit.study.nodes import Node
from xformer_kit.study.range import SETTINGS


@SETTINGS.register("budget")
@dataclass(frozen=True)
class Budget:
    """The cost that all variants share with the baseline; `by`: the config key that is adjusted."""

    # the cost that is made equal to the baseline's
    match: Literal["params", "flops", "tokens", "seconds", "none"] = "none"
    # a size of the model, or trainer.max_steps; null: ffn.width for params, trainer.max_steps else
    by: str | None = None
    tolerance: float = 0.01  # largest relative difference from the baseline

    @classmethod
    def check(cls, options, context):
        yield from above(options, "It is a share of the baseline's, such as 0.01.", tolerance=0)
        knobs = KNOBS[options.match]
        if knobs and options.by not in (None, *knobs):
            yield Fault(
                "by",
                f"must be a key that match={options.match} can adjust",
                got=f"{options.by!r}",
                fix=f"Known: {', '.join(knobs)}.",
            )


@SETTINGS.register("stop")
@dataclass(frozen=True)
class Stop:
    """Stops a variant that is significantly worse than the baseline by more than a margin: it is
    not run at further seeds.
    """

    after: int = 3  # seeds at which every variant is run
    margin: float | None = None  # difference in the metric; null: that of the study, or 0
    alpha: float = 0.05  # false-positive rate of the rule, over all looks

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "seeds", after=2)
        yield from at_least(options, margin=0)
        yield from in_range(options, alpha=(1e-6, 1))


def seeds(node: Node, first: int = 0) -> list[int]:
    """The seeds of a study's complete node; `first` and following if `seeds` is a number."""
    seeds = node["seeds"]
    return list(seeds) if isinstance(seeds, list) else list(range(first, first + seeds))


SIZES = ("ffn.width", "model.dim", "model.layers")
STEPS = ("trainer.max_steps",)
KNOBS = {"params": SIZES, "flops": (*STEPS, *SIZES), "tokens": STEPS, "seconds": STEPS, "none": ()}


@SETTINGS.register("study")
@dataclass(frozen=True)
class Study:
    """A question, the runs that answer it, and how they are compared."""

    question: str = ""  # one sentence; the report's title
    name: str | None = None  # directory under outputs/studies; null: the name of the study's file
    # {paper: ..., expect: {variant: ..., is: worse|better|equal|no_worse, than: ...}}
    claim: dict | None = None
    baseline: dict | None = None  # factor -> the level that all others are compared with
    factors: dict | None = None  # factor -> levels
    only: dict | None = None  # factor -> {another factor: levels under which it is varied}
    # combinations of levels that are not run: [{placement: post, norm: dyt}]
    exclude: list | None = None
    labels: dict | None = None  # variant -> its name in the report
    # one_at_a_time, pairs, factorial, fractional, random, ladder, search
    design: Design = None  # type: ignore[assignment]
    budget: dict | None = None  # {match: params, by: ffn.width, tolerance: 0.01}
    # override -> values: every variant is run with each, and compared at its own best value
    tune: dict | None = None
    # {after: 3, margin: 0.1}: variants that are significantly worse by more are stopped
    stop: dict | None = None
    seeds: int | list[int] = 5  # their number, from `seed` upwards; or a list
    metric: str = VAL_LOSS  # at the end of a run
    # for a metric of your own; null: the known direction of the metric
    higher_is_better: bool | None = None
    # secondary metrics, whose means and differences are reported without a test
    also: list[str] | None = None
    margin: float | None = None  # difference in the metric below which variants count as equivalent
    # at which every variant is run: [{model.dim: 64}, {model.dim: 128}]; null: that of the config
    sizes: list[dict] | None = None
    forecast: bool = False  # of a ladder: the largest size is foretold before it is trained
    # true: also run the baseline with only the initial weights, only the order of the data and only
    # dropout varied; or a list of weights, order, dropout
    noise_floor: bool | list[Literal["weights", "order", "dropout"]] = False
    # of another trainer: started for each run, with {factor}, {seed} and {dir} replaced
    command: str | None = None
    # with a command, where its number is: {dir}/log.jsonl:val_loss, {dir}/train.log:/loss (.*)/
    result: str | None = None
    max_runs: int = 200  # a study with more runs is refused
    runs: str = "outputs/runs"  # directory of all runs, by key; studies share it
    # of a search; several machines can share it: sqlite:///FILE, another database's URL, or a file
    storage: str | None = None
    retry: bool = False  # repeat runs that failed or diverged
    log_report: bool = True  # with logger=wandb: log the report as a W&B run in the study's group
    dry_run: bool = False  # print the plan and its cost, and stop

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "run", max_runs=1)
        yield from above(options, "null is no margin.", margin=0)
        chosen = options.seeds
        if isinstance(chosen, int):
            valid = chosen > 0
        else:
            valid = 0 < len(chosen) == len(set(chosen)) and min(chosen) >= 0
        if not valid:
            yield Fault(
                "seeds",
                "must be their number, or different numbers from 0 on",
                chosen,
                "Try 5, or a list such as [0, 1, 2].",
            )
