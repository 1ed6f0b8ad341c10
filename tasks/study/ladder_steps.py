"""The steps of a ladder's rungs: as many steps as make its tokens, which follow from the
variant's parameters.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tasks.logging.bar import compact
from xformer_kit.inspect.cost import tokens
from xformer_kit.registry import Fault, config_error
from xformer_kit.study import budget, scaling
from xformer_kit.study.design import Rung
from xformer_kit.study.ladder import LENGTH, axis
from xformer_kit.study.nodes import Config
from xformer_kit.study.plan import Variant


def faults(found: Sequence[Variant], command: Sequence[str]) -> list[Fault]:
    """What the command line gives that the rungs give too."""
    rungs = [variant.rung for variant in found if variant.rung]
    keys = {word.partition("=")[0] for rung in rungs for word in rung.words} | (
        {LENGTH} if rungs else set()
    )
    given = {word.lstrip("+").partition("=")[0]: word.lstrip("+") for word in command}
    return [
        Fault(
            key,
            "is set by the ladder on every rung",
            got=given[key],
            fix="Leave it out, or change study.design.",
        )
        for key in given
        if key in keys
    ]


def cost(config: Config, rung: Rung | None, what: str, costs: Any) -> float:
    """How much a config has of what a budget matches, at its rung's length."""
    return costs.one(_long(config, rung, costs)[0] if rung and what != "params" else config, what)


def with_steps(variant: Variant, tolerance: float, costs: Any) -> Variant:
    """A variant with the steps of its rung. Raises ConfigError where whole steps miss the tokens by
    more than the tolerance.
    """
    rung = variant.rung
    if rung is None:
        return variant
    config, off = _long(variant.config, rung, costs)
    steps, asked = config["trainer"]["max_steps"], rung.multiple * costs.one(config, "params")
    if abs(off) > tolerance:
        raise config_error(
            "study.design.multiples",
            f"{rung.multiple:g} tokens for each parameter are {asked:,.0f}, which steps of"
            f" {tokens(config, 1):,.0f} tokens miss by {100 * off:+.1f} % at best",
            fix=(
                "Take a larger multiple or a smaller data.batch_size, or raise"
                " study.budget.tolerance."
            ),
        )
    if (there := costs.steps(config)) < steps:
        raise config_error(
            "trainer.max_epochs",
            f"ends the run after {there:,} steps, and its rung has {steps:,}",
            fix="Set trainer.max_epochs=null.",
        )
    return replace(variant, config=config, rung=replace(rung, steps=steps))


def unfit(made: Sequence[Variant]) -> list[Fault]:
    """Why sizes and tokens as they were counted identify no law, once for each variant."""
    found = []
    for label in dict.fromkeys(variant.label for variant in made if variant.rung):
        mine = [v for v in made if v.label == label and v.rung]
        sizes = {v.rung.words: v.cost["params"] for v in mine}
        if len(set(sizes.values())) < len(sizes):
            sizes_text = ", ".join(
                f"{' '.join(words)} has {params:,.0f}" for words, params in sizes.items()
            )
            found.append(
                Fault(
                    "study.design.sizes",
                    f"must differ in parameters; {sizes_text}",
                    fix=f"[variant {label}]",
                )
            )
            continue
        try:
            points = [scaling.Point(v.cost["params"], v.cost["tokens"], 1.0) for v in mine]
            scaling.identified(points, axis(v.rung.multiple for v in mine))
        except ValueError as error:
            found.append(Fault("study.design", f"{error}", fix=f"[variant {label}]"))
    return found


def ladder(plan: Any) -> str:
    """The tokens and steps of the rungs, for a dry run."""
    first = next(v for v in plan.variants if v.rung)
    most = max(plan.variants, key=lambda v: v.cost["epochs"])
    top = max(plan.variants, key=lambda v: v.cost["params"])
    text = (
        f"x{first.rung.multiple:g}: {first.rung.multiple:g} tokens for each parameter, which give"
        " the steps. Laws are evaluated at"
        f" {compact(plan.node['design']['ahead'] * top.cost['params'])} parameters."
    )
    if most.cost["epochs"] > 1:
        text += (
            f" {most.title} reads its data {most.cost['epochs']:.1f} times: tokens that come again"
            " teach less."
        )
    warmup = first.config["schedule"].get("warmup") or 0
    if warmup > first.cost["steps"] / 4:
        text += (
            f" Warm-up, schedule.warmup={warmup:g}, is {100 * warmup / first.cost['steps']:.0f} %"
            " of the shortest run, which bends a law: give each size its own, or a shorter one."
        )
    return text


def _long(config: Config, rung: Rung, costs: Any) -> tuple[Config, float]:
    return budget.lengthened(config, rung.multiple * costs.one(config, "params"), tokens(config, 1))
