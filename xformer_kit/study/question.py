"""What does a study ask? The `study` node of the config: factors and a design, a budget, seeds, and
what is measured.

study:
  question: Does the placement of the norm matter without warm-up?
  claim: {paper: "Xiong et al., 2020, arXiv:2002.04745", expect: {variant: "placement=post", is:
  worse}}
  baseline: {placement: pre}
  factors: {placement: [post, sandwich, output]}
  design: one_at_a_time
  budget: {match: params, by: ffn.width, tolerance: 0.01}
  seeds: 5
  metric: val/loss
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any, Literal

from xformer_kit.registry import (
    ConfigError,
    Context,
    Registry,
    above,
    at_least,
    plain,
    shown,
    within,
)
from xformer_kit.study import space
from xformer_kit.study.budget import SHOWN
from xformer_kit.study.design import DESIGNS, Design, baseline, distinct, stuck
from xformer_kit.study.factor import Factor, Levels, label_of, read
from xformer_kit.study.figures import HIGHER, LOWER, metric
from xformer_kit.study.ladder import Ladder  # noqa: F401  (a design in a file of its own)

SETTINGS = Registry("settings")


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
            yield f"by: is no knob for match={options.match}; got {options.by!r}. Known: {known}."


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
    design: Design = None  # type: ignore[assignment]  # one_at_a_time, pairs, factorial, fractional, random, ladder, search
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
            yield (
                "metric: must name a metric of the end of a run; got ''. Leave it out for val/loss."
            )
        if options.seeds == [] or (isinstance(options.seeds, int) and options.seeds < 1):
            yield (
                f"seeds: must be at least 1; got {shown(options.seeds)}. Try 5, or a list such as"
                " [0, 1, 2]."
            )
        elif isinstance(options.seeds, list) and len(set(options.seeds)) < len(options.seeds):
            yield (
                f"seeds: must be different numbers; got {options.seeds}. A run at one seed twice is"
                " one run."
            )
        elif isinstance(options.seeds, list) and min(options.seeds) < 0:
            yield f"seeds: must be at least 0; got {min(options.seeds)}."


WAYS = {  # what a mapping of a study looks like
    "claim": "{paper: ..., expect: {variant: placement=post, is: worse}}",
    "baseline": "{placement: pre}",
    "factors": "{placement: [post, sandwich]}",
    "only": "{ffn.width: {ffn: mlp}}",
    "labels": "{placement=post: the first transformer}",
    "budget": "{match: params, by: ffn.width}",
    "tune": "{optim.lr: [1e-3, 3e-3]}",
    "stop": "{after: 3, margin: 0.1}",
}
DIRECTORY, PLAIN = re.compile(r"[^/\\\s.][^/\\\0]*"), "my_study"
DEFAULT_DESIGN = {"name": "one_at_a_time"}


def complete(node: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The node with the defaults of what it does not say; `name` where it gives itself none."""
    defaults = {key: plain(option.default) for key, option in SETTINGS.options("study").items()}
    found = defaults | dict(node)
    found["design"] = DESIGNS.complete(found["design"] or DEFAULT_DESIGN)
    budget: dict[str, Any] = {f.name: f.default for f in fields(Budget)} | dict(
        found["budget"] or {}
    )
    if budget["by"] is None and budget["match"] != "none":
        budget["by"] = KNOBS[budget["match"]][0]
    stop = (
        {f.name: f.default for f in fields(Stop)} | dict(found["stop"])
        if found["stop"] is not None
        else None
    )
    return found | {"name": found["name"] or name, "budget": budget, "stop": stop}


def faults(node: Any, context: Context | None = None) -> list[str]:
    """What is wrong with a study's node, before any of its variants is composed."""
    context = context or Context()
    if not isinstance(node, Mapping):
        return [
            f"study: must be a mapping with a question, factors and a baseline; got {shown(node)}."
        ]
    if isinstance(node.get("study"), Mapping):
        return [
            "study.study: lies in a study already, for its file has no header. Begin the file with"
            " # @package _global_"
        ]
    plainly = {key: value for key, value in node.items() if key not in ("design", "name")}
    found = [
        _with_way(fault)
        for fault in SETTINGS.faults(
            {"name": "study"} | plainly, "study", context, beside=("name", "design")
        )
    ]
    name = node.get("name")
    if name is not None and not (isinstance(name, str) and DIRECTORY.fullmatch(name)):
        found.append(
            f"study.name: must be the name of a directory under outputs/studies; got {shown(name)}."
            f" Try {PLAIN}."
        )
    found += DESIGNS.faults(node.get("design") or DEFAULT_DESIGN, "study.design", context)
    if isinstance(node.get("budget"), Mapping):
        found += SETTINGS.faults({"name": "budget"} | dict(node["budget"]), "study.budget", context)
    if isinstance(node.get("stop"), Mapping):
        found += SETTINGS.faults({"name": "stop"} | dict(node["stop"]), "study.stop", context)
    if found:
        return found
    if (
        not node.get("factors")
        and DESIGNS[DESIGNS.complete(node.get("design") or DEFAULT_DESIGN)["name"]].needs_factors
    ):
        return [
            "study.factors: a study varies something; got none. Add factors: {placement: [post]}."
        ]
    factors, wrong = read(node)
    if wrong:
        return wrong
    if waiting := stuck(factors):
        names = " and ".join(waiting)
        return [
            f"study.only: {names} wait for each other, so none can leave its baseline. Leave one"
            " out."
        ]
    of_variants = [*_designed(node, factors), *_excluded(node, factors), *_tuned(node, factors)]
    of_variants += [*_turned(node, factors), *_seeded(node, factors)]
    return [*of_variants, *_measured(node), *_twice(node), *_stopped(node)]


def _with_way(fault: str) -> str:
    """A sentence on a value that is no mapping, with one that is."""
    said = re.match(r"study\.(\w+): must be a mapping", fault)
    return f"{fault} Try study.{said[1]}='{WAYS[said[1]]}'." if said and said[1] in WAYS else fault


def _measured(node: Mapping[str, Any]) -> Iterator[str]:
    """A metric of which nobody knows whether it is to rise or to fall would be found out after the
    last run.
    """
    name, said = (
        node.get("metric") or SETTINGS.options("study")["metric"].default,
        node.get("higher_is_better"),
    )
    try:
        known = (
            metric(name) if said is None or name.rpartition("/")[2] in (*LOWER, *HIGHER) else None
        )
    except ConfigError as error:
        own = "Of a metric of your own say it: study.higher_is_better=true, or false."
        yield from (f"{fault} {own}" for fault in error.faults)
        return
    if said is not None and known is not None and known.higher_is_better != said:
        yield (
            f"study.higher_is_better: {name} is better {'lower' if said else 'higher'}; got"
            f" {shown(said)}. Set it to null, which takes what is known of a metric."
        )


def _twice(node: Mapping[str, Any]) -> Iterator[str]:
    """Metrics of `also` that are reported already."""
    compared = node.get("metric") or SETTINGS.options("study")["metric"].default
    also = node.get("also") or []
    for i, name in enumerate(also):
        if name == compared or name in also[:i]:
            yield (
                f"study.also[{i}]: {name} is"
                f" {'what is compared' if name == compared else 'named twice'}. Leave it out."
            )


def _designed(node: Mapping[str, Any], factors: Mapping[str, Factor]) -> Iterator[str]:
    design = DESIGNS.complete(node.get("design") or DEFAULT_DESIGN)
    if DESIGNS[design["name"]].adaptive:
        yield from space.faults(complete(node, ""), factors)
        return
    for name, factor in factors.items():
        if factor.interval is not None:
            yield (
                f"study.factors.{name}: is an interval, which design=search alone draws from. List"
                " its levels."
            )
    if node.get("storage") is not None:
        yield f"study.storage: belongs to design=search; got {node['storage']}. Leave it out."
    if reason := DESIGNS[design["name"]].cannot(factors):
        yield (
            f"study.design: '{design['name']}' {reason}. Try design=one_at_a_time or"
            " design=factorial."
        )
    else:
        yield from DESIGNS.create(design).clashes(complete(node, ""), factors)


def _excluded(node: Mapping[str, Any], factors: Mapping[str, Factor]) -> Iterator[str]:
    for i, pattern in enumerate(node.get("exclude") or ()):
        path = f"study.exclude[{i}]"
        if not isinstance(pattern, Mapping) or not pattern:
            yield f"{path}: must map factors to levels; got {shown(pattern)}."
            continue
        for name, value in pattern.items():
            if name not in factors:
                yield f"{path}.{name}: is no factor. Factors: {', '.join(factors)}."
            elif label_of(value) not in factors[name].levels:
                yield (
                    f"{path}.{name}: is no level; got {label_of(value)}. Known:"
                    f" {', '.join(factors[name].levels)}."
                )
        if all(
            name in factors and factors[name].baseline == label_of(value)
            for name, value in pattern.items()
        ):
            yield (
                f"{path}: is the baseline, which the others are compared with; it cannot be left"
                " out."
            )


def _tuned(node: Mapping[str, Any], factors: Mapping[str, Factor]) -> Iterator[str]:
    for key, values in (node.get("tune") or {}).items():
        if not isinstance(values, list) or len(values) < 2:
            yield (
                f"study.tune.{key}: must list two values or more; got {shown(values)}. Try {key}:"
                " [1e-3, 3e-3]."
            )
        elif len(set(map(shown, values))) < len(values):
            yield f"study.tune.{key}: names a value twice; got {shown(values)}. Leave one out."
        if key in factors:
            yield f"study.tune.{key}: is a factor too. Leave it out of one of them."


def _set(node: Mapping[str, Any], factors: Mapping[str, Factor]) -> dict[str, str]:
    """Config path -> the place of the study that sets it."""
    found: dict[str, str] = {}
    for factor in factors.values():
        levels = [
            *factor.levels.values(),
            *([{factor.name: None}] if factor.interval is not None else []),
        ]
        for key, value in (pair for words in levels for pair in words.items()):
            inside = [f"{key}.{option}" for option in value] if isinstance(value, Mapping) else []
            found |= dict.fromkeys((key, *inside), f"study.factors.{factor.name}")
    return found | {key: f"study.tune.{key}" for key in node.get("tune") or {}}


def _seeded(node: Mapping[str, Any], factors: Mapping[str, Factor]) -> Iterator[str]:
    if where := _set(node, factors).get("seed"):
        yield (
            f"{where}: every variant is run at the same seeds, those of study.seeds; leave it out,"
            " and set study.seeds."
        )


def _turned(node: Mapping[str, Any], factors: Mapping[str, Factor]) -> Iterator[str]:
    """A knob that what is varied sets too: turned, it would undo that."""
    budget = complete(node, "")["budget"]
    said = _set(node, factors)
    if budget["match"] != "none" and budget["by"] in said:
        free = [knob for knob in KNOBS[budget["match"]] if knob not in said]
        ways = f"Turn {' or '.join(free)}, or" if free else "Choose"
        yield (
            f"study.budget.by: {budget['by']} is turned to match {SHOWN[budget['match']]}, which"
            f" would undo what {said[budget['by']]} sets; got {budget['by']!r}. {ways}"
            " study.budget.match=none."
        )


def _stopped(node: Mapping[str, Any]) -> Iterator[str]:
    whole = complete(node, "")
    if not whole["stop"]:
        return
    count = whole["seeds"] if isinstance(whole["seeds"], int) else len(whole["seeds"])
    after, design = whole["stop"]["after"], whole["design"]["name"]
    if after >= count:
        yield (
            f"study.stop.after: must leave seeds to spare; got {after} of {count} seeds. Raise"
            " study.seeds, or study.stop=null."
        )
    if reason := DESIGNS[design].no_stop:
        yield f"study.stop: '{design}' {reason}. Try design=one_at_a_time, or study.stop=null."
    if find_spec("scipy") is None:
        yield (
            "study.stop: needs scipy for its test; got none. pip install 'xformer_kit[study]', or"
            " study.stop=null."
        )


def levels_of(node: Mapping[str, Any]) -> tuple[dict[str, Factor], list[Levels]]:
    """The factors of a node without faults, and the variants that its design chooses, the baseline
    first.
    """
    factors, wrong = read(node)
    if wrong:
        raise ConfigError(wrong)
    patterns = [
        {str(k): label_of(v) for k, v in pattern.items()} for pattern in node.get("exclude") or ()
    ]
    design = DESIGNS.create(node["design"])
    found = distinct(design, factors, patterns)
    if patterns and len(found) == 1 and not design.adaptive:
        raise ConfigError(
            "study.exclude: leaves no variant beside the baseline. Take a combination out of it."
        )
    if design.limit is not None and len(found) - 1 < design.limit:
        raise ConfigError(
            f"study.design.count: must be at most the variants that there are; got {design.limit},"
            f" and beside the baseline there are {len(found) - 1}. Try {len(found) - 1}, or"
            " design=factorial, which takes all."
        )
    return factors, found


def label(factors: Mapping[str, Factor], levels: Levels) -> str:
    """What is changed to the baseline: placement=post, norm=dyt; "baseline" where nothing is."""
    base = baseline(factors)
    return ", ".join(f"{name}={x}" for name, x in levels.items() if x != base[name]) or "baseline"
