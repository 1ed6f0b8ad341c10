"""Converts a study, or overrides with several values, to a W&B sweep: the YAML file for `wandb
sweep` and `wandb agent`.

An agent appends the values that W&B proposes to the fixed arguments, as `key=value`: `python
-m xformer_kit train model.dim=64 attn.heads=4`.
"""

import itertools
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException

from tasks import Config, Facts, State
from tasks.process.command_faults import changed_faults, faults_at, refuse
from xformer_kit.config import compose, preflight
from xformer_kit.config.line.overrides import expand, parse_word
from xformer_kit.config.line.to_overrides import to_overrides
from xformer_kit.config.options.logger_options import as_loggers
from xformer_kit.config.saved.difference import differing, flat
from xformer_kit.metrics import VAL_LOSS
from xformer_kit.registry import ConfigError, Context, config_error
from xformer_kit.registry.messages import one_line
from xformer_kit.study import sizes, study_node
from xformer_kit.study.design import DESIGNS
from xformer_kit.study.metric import metric
from xformer_kit.study.plan import words_of
from xformer_kit.study.range import SETTINGS, FactorRange
from xformer_kit.study.settings import seeds
from xformer_kit.text.command_lines import override_text

COMMAND = ["${env}", "${interpreter}", "-m", "${program}", "train"]  # in W&B's variables
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")  # of a parameter, by W&B's schema
DISTRIBUTIONS = {  # (logarithmic, integers) -> W&B's name
    (False, False): "uniform",
    (False, True): "int_uniform",
    (True, False): "log_uniform_values",
    (True, True): "q_log_uniform_values",
}
MAX_COMPOSED = 64  # combinations that are composed before the file is written; else a sample


class WandbSweep(NamedTuple):
    """`config` is the content of the YAML file; `notes` are sentences on what a W&B sweep does not
    do.
    """

    config: Config
    notes: list[str]


def export_sweep(
    arguments: list[str],
    method: str | None = None,
    metric_name: str | None = None,
    components: Sequence[str] = (),
) -> WandbSweep:
    """Returns the W&B sweep of a command line that names a study, or that gives overrides several
    values or an interval.

    Raises ConfigError if no key has several values, if W&B cannot vary a key, or if a combination
    is invalid.
    """
    files = [f"components={override_text(components)}"] if components else []
    try:
        overrides = [override for word in expand(arguments) for override in parse_word(word)]
    except HydraException as error:
        fix = "Give values of options: attn.heads=2,4."
        raise config_error("sweep", f"cannot be read ({one_line(error)})", fix=fix) from None
    if any(override.key_or_group == "study" for override in overrides):
        return _study_sweep([*files, *arguments], method, metric_name)
    varied = [override for override in overrides if override.is_sweep_override()]
    if not varied:
        raise config_error(
            "sweep",
            "needs something to vary",
            " ".join(arguments) or "nothing",
            "Try attn.heads=2,4,8 or 'optim.lr=tag(log,interval(1e-4,1e-2))' or study=NAME.",
        )
    parameters = {override.key_or_group: _parameter(override) for override in varied}
    fixed = [*files, *(str(o.input_line) for o in overrides if not o.is_sweep_override())]
    for combination in combinations(parameters):
        config = _compose(fixed, combination)
        parameters |= _integers(parameters, config)
    method = _method(method, parameters)
    return WandbSweep(_sweep_config(parameters, fixed, method, metric_name or VAL_LOSS), [])


def _study_sweep(arguments: list[str], method: str | None, metric_name: str | None) -> WandbSweep:
    """Returns the W&B sweep of a study."""
    line: Any = preflight(arguments)
    refuse(study_node.faults(line.study))
    node = study_node.complete(line.study, line.study["name"])
    design = node["design"]
    if sizes.rungs(node):
        raise config_error(
            "study.sizes" if node["sizes"] else "study.design",
            "has several sizes, and a W&B sweep varies each option independently of the others",
            fix="Run the study itself, or take study.design=one_at_a_time at one size.",
        )
    factors, variants = study_node.levels_of(node)
    parameters = _study_parameters(factors, node["tune"] or {})
    baseline = {name: factor.baseline for name, factor in factors.items()}
    base, faults = line.compose(words_of(factors, baseline))
    refuse(faults)
    varied = tuple(f"{key}{end}" for key in (*parameters, "seed") for end in "=.")
    fixed = [
        *([f"components={override_text(line.components)}"] if line.components else []),
        *(word for word in to_overrides(base) if not word.lstrip("~").startswith(varied)),
    ]
    is_search = DESIGNS[design["name"]].adaptive
    invalid = _check_combinations(line, parameters, fixed, is_search)
    method = _method(method or ("bayes" if is_search else None), parameters)
    if method == "grid":
        parameters["seed"] = {"values": seeds(node, base["seed"])}
    config = _sweep_config(
        parameters,
        fixed,
        method,
        metric_name or node["metric"],
        None if metric_name else node["higher_is_better"],
        name=node["name"],
        description=node["question"],
    )
    if is_search:
        config["run_cap"] = design["trials"]
    count = math.prod(len(factor.levels) for factor in factors.values())
    return WandbSweep(config, [*_notes(node, method, (count, len(variants)), invalid)])


def _study_parameters(factors: Facts, tune: Mapping[str, list[Any]]) -> State:
    """Returns W&B's parameters for the factors of a study and the keys that each variant tunes."""
    parameters: State = {}
    for name, factor in factors.items():
        for label, overrides in factor.levels.items():
            if set(overrides) != {name}:
                raise config_error(
                    f"study.factors.{name}",
                    f"W&B varies each key by itself, and the level {label} sets"
                    f" {', '.join(overrides) or 'nothing'}",
                    fix="Run the study itself, or make each key a factor.",
                )
        parameters[name] = (
            _choice(overrides[name] for overrides in factor.levels.values())
            if factor.interval is None
            else _distribution(factor.interval)
        )
    return parameters | {key: _choice(values) for key, values in tune.items()}


def _check_combinations(line: Any, parameters: Facts, fixed: list[str], is_search: bool) -> str:
    """Returns the message on an invalid combination of a search, which skips it; "" if there is
    none. Raises ConfigError for an invalid combination of another design, and if W&B would train
    another model than the study.
    """
    invalid = ""
    for combination in combinations(parameters):
        try:
            config = _compose(fixed, combination)
        except ConfigError as error:
            if not is_search:
                raise
            invalid = error.messages[0]
            continue
        expected, _ = line.compose(combination)
        if wrong := differing([dict(flat(config)), dict(flat(expected))]):
            raise config_error(
                "study.factors",
                f"W&B would train another model than the study at {' '.join(combination)}:"
                f" {', '.join(wrong)} would differ",
                fix="Give such options as part of a level: mask: [{name: sliding_window,"
                " window: 64}].",
            )
    return invalid


def _notes(node: Facts, method: str, counts: tuple[int, int], invalid: str) -> Iterator[str]:
    """Yields what a study does and a W&B sweep does not. counts: combinations, and variants of the
    study; invalid: the message on a combination that is no valid model, or "".
    """
    left_out = [f"study.{key}" for key in ("only", "exclude", "stop") if node[key]]
    left_out += ["study.seeds"] * (method != "grid")
    left_out += ["study.budget"] * (node["budget"]["match"] != "none")
    left_out += ["study.design.pruner"] * (node["design"].get("pruner", "none") != "none")
    if left_out:
        yield f"W&B does not do what these set: {', '.join(left_out)}."
    if method == "grid" and counts[0] != counts[1]:
        yield f"The sweep tries all {counts[0]} combinations; the study {counts[1]} of them."
    if invalid:
        yield f"W&B proposes points that are no valid model and end with code 2: {invalid}"


def combinations(parameters: Mapping[str, Facts], limit: int = MAX_COMPOSED) -> Iterator[list[str]]:
    """Yields the overrides of combinations that W&B can propose: of all values and the ends of
    intervals. If there are more than `limit`, each value is in one, and the others are a fixed
    random sample, which may repeat combinations.

    parameters: name -> {"values": [...]} or {"min": ..., "max": ...}, as in W&B's file.
    """
    values = {
        key: parameter.get("values") or [parameter["min"], parameter["max"]]
        for key, parameter in parameters.items()
    }
    rows: Any = itertools.product(*values.values())
    if math.prod(map(len, values.values())) > limit:
        generator, count = random.Random(0), max(map(len, values.values()))
        rows = [tuple(some[i % len(some)] for some in values.values()) for i in range(count)]
        rows += [tuple(map(generator.choice, values.values())) for _ in range(limit - count)]
    for row in rows:
        yield [f"{key}={item}" for key, item in zip(values, row, strict=True)]


def _compose(fixed: list[str], combination: list[str]) -> Config:
    """Returns the config of a combination. Raises ConfigError if it is invalid."""
    with changed_faults(lambda fault: fault.with_fix(f"[{' '.join(combination)}]")):
        config = compose([*fixed, *combination], data=False)
    if "wandb" not in (names := as_loggers(config["logger"])):
        raise config_error(
            "logger",
            "a W&B sweep needs the values that runs log to W&B",
            " and ".join(names),
            "Take logger=wandb.",
        )
    return config


def _parameter(override: Override) -> State:
    """Returns W&B's parameter for an override with several values or an interval."""
    key, sweep = override.key_or_group, override.value()
    if not NAME.fullmatch(key):
        raise config_error(
            key,
            "is no name of a W&B parameter, which has letters, digits and _ . - only",
            fix="Give it one value.",
        )
    if isinstance(sweep, IntervalSweep):
        interval: State = {"low": sweep.start, "high": sweep.end, "log": "log" in sweep.tags}
        refuse(SETTINGS.faults({"name": "interval", **interval}, key, Context()))
        return _distribution(FactorRange(**interval))
    try:
        parser = OverridesParser.create()
        return _choice(
            parser.parse_override(f"x={text}").value() for text in override.sweep_string_iterator()
        )
    except HydraException:
        raise config_error(
            key, "must list its values", override.input_line, f"Try {key}=1,2."
        ) from None


def _integers(parameters: Mapping[str, State], config: Config) -> dict[str, State]:
    """Returns the parameters of intervals whose options are integers, which Hydra reads as floats;
    config: of one end.
    """
    found = {}
    for key, parameter in parameters.items():
        value: Any = config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if type(value) is int and type(parameter.get("min")) is float:
            low, high = int(parameter["min"]), int(parameter["max"])
            log = parameter["distribution"] == DISTRIBUTIONS[True, False]
            found[key] = _distribution(FactorRange(low, high, log))
    return found


def _distribution(interval: FactorRange) -> State:
    """Returns W&B's parameter for an interval; with steps, it is a list of values."""
    if interval.step and (values := interval.values()) is not None:
        return {"values": values}
    log, integers = interval.log, interval.integer
    return {
        "distribution": DISTRIBUTIONS[log, integers],
        # With an integer q, W&B rounds to multiples of it and prints integers.
        **({"q": 1} if log and integers else {}),
        "min": interval.low,
        "max": interval.high,
    }


def _choice(values: Iterable[Any]) -> State:
    """Returns W&B's parameter for a list of values, in the form in which Python prints them into
    `key=value`.
    """
    return {"values": [v if isinstance(v, (int, float)) else override_text(v) for v in values]}


def _method(method: str | None, parameters: Mapping[str, Facts]) -> str:
    """Returns the method, by default grid, or bayes if there is an interval."""
    intervals = [key for key, parameter in parameters.items() if "values" not in parameter]
    if method == "grid" and intervals:
        raise config_error(
            "--method",
            f"grid tries all values, and {intervals[0]} has an interval of them",
            fix="List its values, or take --method bayes.",
        )
    return method or ("bayes" if intervals else "grid")


def _sweep_config(
    parameters: Facts,
    fixed: list[str],
    method: str,
    metric_name: str,
    higher_is_better: bool | None = None,
    **texts: str,
) -> State:
    """Returns the content of the YAML file. texts: name and description of the sweep."""
    with faults_at("--metric"):
        maximize = metric(metric_name, higher_is_better).higher_is_better
    return {
        **{key: text for key, text in texts.items() if text},
        "program": "xformer_kit",
        "command": [*COMMAND, *fixed, "${args_no_hyphens}"],
        "method": method,
        "metric": {"name": metric_name, "goal": "maximize" if maximize else "minimize"},
        # A copy without shared lists, which YAML would write as aliases.
        "parameters": json.loads(json.dumps(parameters)),
    }
