"""Defaults and checks of the `study` node of a config: question, claim, factors, design, budget,
seeds and metrics.

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
from importlib.util import find_spec
from itertools import chain
from typing import Any

from xformer_kit.config.faults.result_names import result_names
from xformer_kit.config.options.callbacks import may_log
from xformer_kit.metrics import KNOWN, VAL
from xformer_kit.metrics.direction import registered_direction
from xformer_kit.registry import (
    ConfigError,
    Context,
    Fault,
    config_error,
    format_value,
    suggestion,
    to_plain,
)
from xformer_kit.study import external, forecast, noise, sizes, space
from xformer_kit.study.design import DESIGNS, baseline, circular_conditions, design_variants
from xformer_kit.study.factor import Factor, Factors, Levels, label_of, read_factors
from xformer_kit.study.ladder import LadderDesign  # noqa: F401  (a design in a file of its own)
from xformer_kit.study.metric import metric
from xformer_kit.study.nodes import Config, Node
from xformer_kit.study.settings import KNOBS, SETTINGS, seeds

DIRECTORY_NAME, EXAMPLE_NAME = re.compile(r"[^/\\\s.][^/\\\0]*"), "my_study"
DEFAULT_DESIGN = {"name": "one_at_a_time"}


def complete(node: Node, name: str) -> dict:
    """The node with defaults for missing keys; `name` is the default of its name."""
    found = _with_defaults("study", external.with_defaults(node))
    budget = _with_defaults("budget", found["budget"] or {})
    if budget["by"] is None and budget["match"] != "none":
        budget["by"] = KNOBS[budget["match"]][0]
    if found["higher_is_better"] is None:  # of a user's metric, whose file a report does not read
        found["higher_is_better"] = registered_direction(found["metric"])
    return found | {
        "name": found["name"] or name,
        "design": DESIGNS.complete(found["design"] or DEFAULT_DESIGN),
        "budget": budget,
        "stop": None if found["stop"] is None else _with_defaults("stop", found["stop"]),
    }


def _with_defaults(settings: str, node: Node) -> dict:
    """The node with defaults for the missing options of these settings."""
    return {
        key: to_plain(option.default) for key, option in SETTINGS.options(settings).items()
    } | dict(node)


def faults(node: Any, context: Context | None = None) -> list[Fault]:
    """The faults of a study's node that are known before its variants are composed."""
    context = context or Context()
    if not isinstance(node, Mapping):
        return [
            Fault(
                "study",
                "must be a mapping with a question, factors and a baseline",
                got=node,
            )
        ]
    return list(_setting_faults(node, context)) or _factor_faults(external.with_defaults(node))


def _setting_faults(node: Node, context: Context) -> Iterator[Fault]:
    """Unknown keys, and values of the wrong type."""
    settings = {"name": "study"} | {k: v for k, v in node.items() if k not in ("design", "name")}
    yield from SETTINGS.faults(settings, "study", context, other_keys=("name", "design"))
    name = node.get("name")
    if name is not None and not (isinstance(name, str) and DIRECTORY_NAME.fullmatch(name)):
        yield Fault(
            "study.name",
            "must be the name of a directory under outputs/studies",
            got=format_value(name),
            fix=f"Try {EXAMPLE_NAME}.",
        )
    yield from DESIGNS.faults(node.get("design") or DEFAULT_DESIGN, "study.design", context)
    for key in ("budget", "stop"):
        if isinstance(node.get(key), Mapping):
            yield from SETTINGS.faults({"name": key} | dict(node[key]), f"study.{key}", context)


def _factor_faults(node: Node) -> list[Fault]:
    """Faults of the factors, and of settings that contradict them."""
    settings = complete(node, "")
    if not settings["factors"] and DESIGNS[settings["design"]["name"]].needs_factors:
        return [
            Fault(
                "study.factors",
                "must have at least one factor",
                got="none",
                fix="Add factors: {placement: [post]}.",
            )
        ]
    factors, wrong = read_factors(node)
    if wrong := wrong or list(circular_conditions(factors, baseline_counts=True)):
        return wrong
    if wrong := list(external.faults(settings, factors)):
        return wrong
    checks = [
        _design_faults(settings, factors),
        _exclude_faults(settings, factors),
        _tune_faults(settings),
        _metric_faults(settings),
        _stop_faults(settings),
        sizes.faults(settings, factors),
        noise.faults(settings),
        forecast.faults(settings),
    ]
    return list(chain(*checks))


def _metric_faults(node: Node) -> Iterator[Fault]:
    """A metric for which it is unknown whether higher is better."""
    name, higher = node["metric"], node["higher_is_better"]
    if higher is None:
        try:
            metric(name)
        except ConfigError as error:
            fix = "State it for a metric of your own: study.higher_is_better=true, or false."
            yield from (fault.with_fix(fix) for fault in error.faults)
    elif (known := KNOWN.get(name.rpartition("/")[2])) and known.higher_is_better != higher:
        yield Fault(
            "study.higher_is_better",
            f"{name} is better {('lower' if higher else 'higher')}",
            got=higher,
            fix="Set it to null, for the known direction of the metric.",
        )


def result_faults(node: Node, config: Config) -> Iterator[Fault]:
    """Metrics of a complete node that a run of this config does not have. A callback of the user's
    own may log a metric of the validation.
    """
    known, own = result_names(config), may_log(config)
    for option, names in (("metric", [node["metric"]]), ("also", node["also"] or [])):
        for name in names:
            if name not in known and not (own and name.startswith(VAL)):
                fix = suggestion(name, known, "It has")
                yield Fault(f"study.{option}", f"a run has no metric called '{name}'", fix=fix)


def _design_faults(node: Node, factors: Factors) -> Iterator[Fault]:
    """Factors and settings that the design does not support."""
    if DESIGNS[node["design"]["name"]].adaptive:
        yield from space.faults(node, factors)
        return
    for key, factor in factors.items():
        if factor.interval is not None:
            yield Fault(
                f"study.factors.{key}",
                "is an interval, which only design=search supports",
                fix="List its levels.",
            )
    if node["storage"] is not None:
        yield Fault(
            "study.storage",
            "belongs to design=search",
            got=f"{node['storage']}",
            fix="Leave it out.",
        )
    yield from DESIGNS.create(node["design"]).conflicts(node, factors)


def _exclude_faults(node: Node, factors: Factors) -> Iterator[Fault]:
    """Excluded combinations with unknown factors or levels, or that are the baseline."""
    for i, pattern in enumerate(node["exclude"] or ()):
        path = f"study.exclude[{i}]"
        if not isinstance(pattern, Mapping) or not pattern:
            yield Fault(path, "must map factors to levels", got=pattern)
            continue
        levels = {name: label_of(value) for name, value in pattern.items()}
        for name, label in levels.items():
            known = factors[name].levels if name in factors else factors
            if name not in factors or label not in known:
                rule = "must be a factor with one of its levels"
                yield Fault(f"{path}.{name}", rule, label, f"Known: {', '.join(known)}.")
        if levels.items() <= baseline(factors).items():
            yield Fault(path, "is the baseline, which the others are compared with", levels)


def _tune_faults(node: Node) -> Iterator[Fault]:
    """Keys of `tune` without two values."""
    for key, values in (node["tune"] or {}).items():
        if not isinstance(values, list) or len(values) < 2:
            rule = "must list two values or more"
            yield Fault(f"study.tune.{key}", rule, values, f"Try {key}: [1e-3, 3e-3].")


def _stop_faults(node: Node) -> Iterator[Fault]:
    """A rule of early stopping that cannot be applied to the study."""
    if not node["stop"]:
        return
    after, count = node["stop"]["after"], len(seeds(node))
    if after >= count:
        yield Fault(
            "study.stop.after",
            "must be below the number of seeds",
            got=f"{after} of {count} seeds",
            fix="Raise study.seeds, or study.stop=null.",
        )
    name = node["design"]["name"]
    if reason := DESIGNS[name].no_stop:
        yield Fault(
            "study.stop", f"'{name}' {reason}", fix="Try design=one_at_a_time, or study.stop=null."
        )
    if find_spec("scipy") is None:
        yield Fault(
            "study.stop",
            "needs scipy for its test",
            got="none",
            fix="pip install 'xformer_kit[study]', or study.stop=null.",
        )


def levels_of(node: Node) -> tuple[dict[str, Factor], list[Levels]]:
    """The factors of a checked node, and the variants of its design, the baseline first."""
    factors, wrong = read_factors(node)
    if wrong:
        raise ConfigError(wrong)
    patterns = excluded(node)
    design = DESIGNS.create(node["design"])
    found = design_variants(design, factors, patterns)
    if patterns and len(found) == 1 and not design.adaptive:
        raise config_error(
            "study.exclude",
            "leaves no variant other than the baseline",
            fix="Take a combination out of it.",
        )
    return factors, found


def excluded(node: Node) -> list[Levels]:
    """The combinations of levels that are excluded."""
    return [
        {str(k): label_of(v) for k, v in pattern.items()} for pattern in node.get("exclude") or ()
    ]


def label(factors: Factors, levels: Levels) -> str:
    """The differences from the baseline: placement=post, norm=dyt; "baseline" if there are none."""
    base = baseline(factors)
    return ", ".join(f"{name}={x}" for name, x in levels.items() if x != base[name]) or "baseline"
