"""A study, or a sweep of overrides, as a W&B sweep: the YAML for `wandb sweep` and `wandb agent`.

An agent appends the values that W&B proposes to the fixed arguments, as `key=value`: `python
train.py model.dim=64 attn.heads=4`.
"""

import itertools
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException

from tasks import Config, Facts, State
from tasks.run.faults import faults_at, refuse
from tasks.run.to_overrides import override_value, to_overrides
from xformer_kit.config import compose, preflight
from xformer_kit.config.difference import differing, flat
from xformer_kit.config.overrides import expand
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.study import study_node
from xformer_kit.study.design import DESIGNS
from xformer_kit.study.metric import metric
from xformer_kit.study.plan import words_of
from xformer_kit.study.range import FactorRange
from xformer_kit.study.settings import seeds

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")  # of a parameter, by W&B's schema
DISTRIBUTIONS = {  # by whether they are logarithmic, and of whole numbers
    (False, False): "uniform",
    (False, True): "int_uniform",
    (True, False): "log_uniform_values",
    (True, True): "q_log_uniform_values",
}
TRIED = 64  # combinations that are composed before the file is written; of more, a sample


class WandbSweep(NamedTuple):
    """`config` is the YAML's content; `notes` are sentences on what a W&B sweep leaves out."""

    config: Config
    notes: list[str]


def export_sweep(
    words: list[str],
    method: str | None = None,
    measured: str | None = None,
    files: Sequence[str] = (),
) -> WandbSweep:
    """The W&B sweep of a command line that names a study, or that gives overrides several values or
    an interval.

    Raises ConfigError if nothing varies, if W&B cannot vary it, or if a combination is invalid.
    """
    own = [f"components={override_value(files)}"] if files else []
    parser = OverridesParser.create()
    try:
        overrides = [parser.parse_override(word) for word in expand(words)]
    except HydraException as error:
        raise config_error("sweep", f"cannot be read: {str(error).splitlines()[0]}") from None
    if any(o.key_or_group == "study" for o in overrides):
        return _study([*own, *words], method, measured)
    varied = [o for o in overrides if o.is_sweep_override()]
    if not varied:
        raise config_error(
            "sweep",
            "needs something to vary",
            " ".join(words) or "nothing",
            "Try attn.heads=2,4,8 or 'optim.lr=tag(log,interval(1e-4,1e-2))' or study=NAME.",
        )
    parameters = {o.key_or_group: _parameter(o) for o in varied}
    fixed = [*own, *(str(o.input_line) for o in overrides if not o.is_sweep_override())]
    for combination in combinations(parameters):
        _accepted([*fixed, *combination], combination)
    return WandbSweep(
        _sweep(parameters, fixed, _method(method, parameters), measured or "val/loss"), []
    )


def _study(words: list[str], method: str | None, measured: str | None) -> WandbSweep:
    line: Any = preflight(words)
    refuse(study_node.faults(line.study))
    node = study_node.complete(line.study, line.study["name"])
    if DESIGNS.create(node["design"]).rungs():
        raise config_error(
            "study.design",
            f"'{node['design']['name']}' trains each size for as many steps as follow from its"
            " parameters, which a W&B sweep cannot express",
            fix="Run the study itself, or take study.design=one_at_a_time.",
        )
    factors, chosen = study_node.levels_of(node)
    parameters = _parameters(factors, node["tune"] or {})
    base, faults = line.compose(
        words_of(factors, {name: factor.baseline for name, factor in factors.items()})
    )
    refuse(faults)
    taken = (*parameters, "seed")
    fixed = [
        w
        for w in to_overrides(base)
        if not w.lstrip("~").startswith(tuple(f"{key}{end}" for key in taken for end in "=."))
    ]
    fixed = [*(word for word in words if word.startswith("components=")), *fixed]
    searches = DESIGNS[node["design"]["name"]].adaptive
    refused = _compared(line, parameters, fixed, searches)
    how = _method(method or ("bayes" if searches else None), parameters)
    if how == "grid":
        parameters["seed"] = {"values": seeds(node, base["seed"])}
    higher = None if measured else node["higher_is_better"]
    found = _sweep(
        parameters, fixed, how, measured or node["metric"], higher, node["name"], node["question"]
    )
    every = math.prod(len(factor.levels) for factor in factors.values())
    left_out = list(_left_out(node, len(chosen), every, how))
    if searches:
        found["run_cap"] = node["design"]["trials"]
        left_out += _searched(node, refused)
    return WandbSweep(found, left_out)


def _parameters(factors: Facts, tune: Mapping[str, list[Any]]) -> State:
    """What W&B may propose for the factors of a study, and for what each of its variants tunes."""
    parameters: State = {}
    for name, factor in factors.items():
        if several := [label for label, said in factor.levels.items() if set(said) != {name}]:
            raise config_error(
                f"study.factors.{name}",
                f"W&B varies each key by itself, and the level {several[0]} sets"
                f" {', '.join(factor.levels[several[0]]) or 'nothing'}",
                fix="Run the study itself, or make each key a factor.",
            )
        values = [_plain(said[name]) for said in factor.levels.values()]
        parameters[name] = (
            {"values": values} if factor.interval is None else _between(factor.interval)
        )
    return parameters | {
        key: {"values": [_plain(item) for item in values]} for key, values in tune.items()
    }


def _compared(line: Any, parameters: Facts, fixed: list[str], searches: bool) -> str:
    """Why a combination is refused that a search may propose; empty where none is. Raises
    ConfigError for one that another study proposes, and where W&B would train another model than
    the study.
    """
    refused = ""
    for combination in combinations(parameters):
        try:
            made = _accepted([*fixed, *combination], combination)
        except ConfigError as error:
            if not searches:
                raise
            refused = error.messages[0]
            continue
        wanted, _ = line.compose(combination)
        if wrong := differing([dict(flat(made)), dict(flat(wanted))]):
            raise config_error(
                "study.factors",
                f"W&B would train another model than the study at {' '.join(combination)}:"
                f" {', '.join(wrong)} would differ",
                fix="Give such options as part of a level: mask: [{name: sliding_window,"
                " window: 64}].",
            )
    return refused


def _searched(node: Facts, refused: str) -> Iterator[str]:
    """What a search does that W&B does not."""
    if refused:
        yield (
            "W&B proposes points that are no valid model, and their runs end at once with code 2,"
            f" such as: {refused}"
        )
    if lost := [f"study.{key}" for key in ("only", "exclude") if node[key]]:
        yield f"W&B has no conditions between parameters: {' and '.join(lost)} is left out."
    if node["design"]["pruner"] != "none":
        yield "No run is ended early. Add early_terminate to the file for that."


def _left_out(node: Facts, chosen: int, every: int, how: str) -> Iterator[str]:
    if how == "grid" and every != chosen:
        yield (
            f"The sweep tries all {every} combinations; the study, by its design"
            f" {node['design']['name']}, {chosen} of them."
        )
    if how != "grid":
        yield (
            "The seeds of the study are left out: with them, a search would take the luckiest one"
            " for the best model."
        )
    if node["stop"]:
        yield "W&B runs every variant at all seeds: study.stop is left out."
    if node["budget"]["match"] != "none":
        yield (
            f"W&B turns no knob to meet a budget, so {node['budget']['match']} of the variants are"
            " not made equal."
        )


def combinations(parameters: Mapping[str, Facts], tried: int = TRIED) -> Iterator[list[str]]:
    """Overrides that W&B can propose: all of them, with the ends of intervals; of more than
    `tried`, each value once and a fixed sample.
    """
    ends = {
        key: said.get("values") or [said["min"], said["max"]] for key, said in parameters.items()
    }
    picks: Any = itertools.product(*ends.values())
    if math.prod(map(len, ends.values())) > tried:
        draw, most = random.Random(0), max(map(len, ends.values()))
        first = [tuple(values[i % len(values)] for values in ends.values()) for i in range(most)]
        picks = first + [tuple(map(draw.choice, ends.values())) for _ in range(tried - most)]
    for pick in picks:
        yield [f"{key}={item}" for key, item in zip(ends, pick, strict=True)]


def _accepted(words: list[str], combination: list[str]) -> Config:
    """The config of a combination. Raises ConfigError if it is invalid, since W&B would propose
    it.
    """
    try:
        config = compose(words, data=False)
    except ConfigError as error:
        raise ConfigError(
            [fault.with_fix(f"[{' '.join(combination)}]") for fault in error.faults]
        ) from None
    if (logger := config["logger"]["name"]) != "wandb":
        raise config_error(
            "logger", "W&B steers by what runs log to it", logger, "Take logger=wandb."
        )
    return config


def _parameter(override: Override) -> State:
    """What W&B may propose for an override that is swept."""
    key, given = override.key_or_group, override.value()
    if not NAME.fullmatch(key):
        raise config_error(
            key,
            "is no name of a W&B parameter, which has letters, digits and _ . - only",
            fix="Give it one value.",
        )
    if isinstance(given, IntervalSweep):
        return _interval(key, given)
    try:
        parser = OverridesParser.create()
        values = [
            parser.parse_override(f"x={text}").value() for text in override.sweep_string_iterator()
        ]
    except HydraException:
        raise config_error(
            key, "must list its values", override.input_line, f"Try {key}=1,2."
        ) from None
    return {"values": [_plain(item) for item in values]}


def _interval(key: str, given: IntervalSweep) -> State:
    low, high, log = given.start, given.end, "log" in given.tags
    if low is None or high is None or not low < high:
        raise config_error(
            key, "an interval goes from a number to a larger one", f"{low} to {high}"
        )
    if log and low <= 0:
        raise config_error(
            key,
            "an interval on a logarithmic scale must begin above 0",
            low,
            "Leave tag(log, ...) out.",
        )
    return _between(FactorRange(low, high, log))


def _between(between: FactorRange) -> State:
    """W&B's distribution over an interval."""
    if between.step and (values := between.values()) is not None:
        return {"values": values}
    kind: State = {"distribution": DISTRIBUTIONS[between.log, between.integer]}
    # With a whole q, W&B rounds to multiples of it and prints whole numbers.
    kind |= {"q": 1} if between.log and between.integer else {}
    return kind | {"min": between.low, "max": between.high}


def _plain(item: Any) -> Any:
    """A value for the YAML, from which it goes into `key=value` as Python prints it."""
    return item if isinstance(item, (int, float)) else override_value(item)


def _method(method: str | None, parameters: Mapping[str, Facts]) -> str:
    between = [key for key, said in parameters.items() if "values" not in said]
    if method == "grid" and between:
        raise config_error(
            "--method",
            f"grid tries all values, and {between[0]} has an interval of them",
            fix="List its values, or take --method bayes.",
        )
    return method or ("bayes" if between else "grid")


def _sweep(
    parameters: Facts,
    fixed: list[str],
    method: str,
    measured: str,
    higher_is_better: bool | None = None,
    name: str = "",
    said: str = "",
) -> State:
    with faults_at("--metric"):
        higher = metric(measured, higher_is_better).higher_is_better
    named = ({"name": name} if name else {}) | ({"description": said} if said else {})
    return named | {
        "program": "train.py",
        "command": ["${env}", "${interpreter}", "${program}", *fixed, "${args_no_hyphens}"],
        "method": method,
        "metric": {"name": measured, "goal": "maximize" if higher else "minimize"},
        "parameters": json.loads(
            json.dumps(parameters)
        ),  # no list of it stands for another, as an alias in YAML would
    }
