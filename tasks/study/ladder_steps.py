"""The optimizer steps of a ladder's rungs: tokens per parameter x parameters / tokens per step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xformer_kit.inspect.cost import tokens
from xformer_kit.registry import Fault, config_error
from xformer_kit.study import budget, scaling
from xformer_kit.study.design import Rung
from xformer_kit.study.forecast import foretold
from xformer_kit.study.ladder import STEPS_KEY, law_axis
from xformer_kit.study.nodes import Config
from xformer_kit.study.numbers import compact
from xformer_kit.study.plan import Variant


def faults(variants: Sequence[Variant], command: Sequence[str]) -> list[Fault]:
    """Returns the faults of overrides on the command line that the rungs also set."""
    rungs = [variant.rung for variant in variants if variant.rung]
    keys = {word.partition("=")[0] for rung in rungs for word in rung.overrides}
    overrides = {word.lstrip("+").partition("=")[0]: word.lstrip("+") for word in command}
    return [
        Fault(
            key,
            "is set by the study at every size",
            override,
            "Leave it out, or change study.design or study.sizes.",
        )
        for key, override in overrides.items()
        if key in keys
    ]


def with_steps(variant: Variant, tolerance: float, costs: Any) -> Variant:
    """Returns a variant with the steps of its rung. Raises ConfigError if an integer number of
    steps misses the tokens by more than the tolerance.
    """
    if (rung := variant.rung) is None or rung.multiple is None:
        return variant
    if (length := variant.config["trainer"].get("max_tokens")) is not None:
        rule = "is not used, since the ladder sets the steps of each rung"
        raise config_error("trainer.max_tokens", rule, length, "Set it to null.")
    config, off = with_tokens(variant.config, rung, costs)
    steps = config["trainer"]["max_steps"]
    if abs(off) > tolerance:
        raise config_error(
            "study.design.multiples",
            f"{rung.multiple:g} tokens per parameter are"
            f" {rung.multiple * costs.cost(config, 'params'):,.0f} tokens, which steps of"
            f" {tokens(config, 1):,.0f} tokens miss by {100 * off:+.1f} %",
            fix=(
                "Take a larger multiple or a smaller data.batch_size, or raise"
                " study.budget.tolerance."
            ),
        )
    if (available := costs.steps(config)) < steps:
        raise config_error(
            "trainer.max_epochs",
            f"ends the run after {available:,} steps, and its rung has {steps:,}",
            fix="Set trainer.max_epochs=null.",
        )
    return replace(variant, config=config, rung=replace(rung, steps=steps))


def law_faults(variants: Sequence[Variant], forecast: bool = False) -> list[Fault]:
    """Returns one fault for each variant whose counted sizes and tokens identify no law."""
    unidentified, steps = [], [v for v in variants if v.rung and v.rung.multiple is not None]
    if forecast:  # the law has to be known without the largest size
        left_out = {*foretold([variant.plain() for variant in steps])}
        steps = [variant for i, variant in enumerate(steps) if i not in left_out]
    for label in dict.fromkeys(variant.label for variant in steps):
        rungs = [v for v in steps if v.label == label]
        points = [scaling.Point(v.cost["params"], v.cost["tokens"], 1.0) for v in rungs]
        try:
            scaling.identified_axes(points, law_axis(v.rung.multiple for v in rungs))
        except ValueError as error:
            unidentified.append(Fault("study.design", str(error), fix=f"[variant {label}]"))
    return unidentified


def ladder(plan: Any) -> str:
    """Returns notes on the rungs, for a dry run."""
    first = next(v for v in plan.variants if v.rung and v.rung.multiple is not None)
    largest = max(v.cost["params"] for v in plan.variants)
    text = (
        f"x{first.rung.multiple:g}: {first.rung.multiple:g} tokens per parameter, which determine"
        f" the steps. Laws are extrapolated to {compact(plan.node['design']['ahead'] * largest)}"
        " parameters."
    )
    warmup = first.config["schedule"].get("warmup") or 0
    if warmup > first.cost["steps"] / 4:
        text += (
            f" Warm-up, schedule.warmup={warmup:g}, is {100 * warmup / first.cost['steps']:.0f} %"
            " of the shortest run, which biases a law: set it for each size, or use a shorter one."
        )
    return text


def with_tokens(config: Config, rung: Rung, costs: Any) -> tuple[Config, float]:
    """Returns the config with the optimizer steps nearest to the tokens of its rung, and their
    relative difference from them.
    """
    wanted, per_step = rung.multiple * costs.cost(config, "params"), tokens(config, 1)
    steps = max(1, round(wanted / per_step))
    return budget.with_knob(config, STEPS_KEY, steps), steps * per_step / wanted - 1
