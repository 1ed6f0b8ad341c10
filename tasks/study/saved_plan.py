"""Reads and validates plan.json of a study."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.study.resolve import PLAN
from xformer_kit.files.saved_files import read_object
from xformer_kit.registry import ConfigError, Fault, config_error, format_value
from xformer_kit.study.nodes import Node

HUGE = 1e300
FIX = "Start the study again; its runs are kept."


def _is_text(value: Any) -> bool:
    """Whether the value is a text without a null character."""
    return isinstance(value, str) and "\0" not in value


def _is_number(value: Any) -> bool:
    """Whether the value is a finite number; json also reads NaN and Infinity."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < HUGE


def _is_object_of(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns the check of an object whose values all pass another check."""
    return lambda value: isinstance(value, dict) and all(map(is_valid, value.values()))


# check -> (description of valid values, whether a value is valid)
CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "null": ("null", lambda value: value is None),
    "text": ("a text without a null character", _is_text),
    "override": (
        "an override such as model.dim=64",
        lambda value: _is_text(value) and "=" in value,
    ),
    "number": ("a number", _is_number),
    "above 0": ("a number above 0", lambda value: _is_number(value) and value > 0),
    "count": ("a whole number from 0 on", lambda value: type(value) is int and value >= 0),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "texts": ("an object of texts", _is_object_of(_is_text)),
    "lists": ("an object of lists", _is_object_of(lambda value: isinstance(value, list))),
}
# The schema of plan.json. A string names checks, one of which must pass. A key with a question mark
# can be null or missing.
STUDY = {
    "name": "text",
    "question": "text or null",
    "metric": "text",
    "higher_is_better?": "boolean",
    "margin?": "above 0",
    "also?": ["text"],
    "design": {"name": "text", "ahead?": "number"},
    "budget": {"match": "text", "tolerance": "above 0", "by?": "text"},
    "claim?": {"paper?": "text"},
    "tune?": "lists",
    "stop?": {"after": "count", "margin": "number or null", "alpha": "above 0"},
}
VARIANT = {
    "label": "text",
    "name": "text",
    "levels": "texts",
    "words": ["text"],
    "tuned": ["override"],
    "knob": ["text"],
    "off": "number",
    "cost": {"steps": "number", "params?": "number", "flops?": "number", "tokens?": "number"},
    "rung?": {"name": "text", "multiple": "number"},
}
POINT = {
    "number": "count",
    "label": "text",
    "status": "text",
    "value": "number or null",
    "step": "count or null",
}
SEARCH = {
    "trials": "count",
    "seed": "count",
    "end": "text or null",
    "refused": "count",
    "again": "count",
    "confirmed": ["text"],
    "commands": "lists",
    "importance": "object",
    "versions?": "texts",
    "points": [POINT],
}
PLAN_SCHEMA = {
    "study": STUDY,
    "pool": "text",
    "command": ["text"],
    "components": ["text"],
    "variants": [VARIANT],
    "runs": [{"variant": "count", "seed": "count", "key": "text"}],
    "search?": SEARCH,
}


def read_plan(folder: Path) -> dict:
    """Returns plan.json of a study's directory. Raises ConfigError if it is missing or damaged."""
    path = folder / PLAN
    try:
        plan = read_object(path, {}, fix=FIX)
    except FileNotFoundError:
        raise config_error(
            folder,
            f"is no study; it has no {PLAN}",
            fix="Name a study's directory such as outputs/studies/norm_placement.",
        ) from None
    if damage := fault(plan, PLAN_SCHEMA, "") or _index_fault(plan):
        raise ConfigError(damage.under(path).with_fix(FIX))
    return plan


def fault(value: Any, schema: Any, path: str) -> Fault | None:
    """Returns the fault of the first value that does not match the schema; None if all do."""
    if isinstance(schema, str):
        checks = [CHECKS[name] for name in schema.split(" or ")]
        if any(is_valid(value) for _, is_valid in checks):
            return None
        descriptions = " or ".join(description for description, _ in checks)
        return Fault(path, f"must be {descriptions}", format_value(value))
    if not isinstance(value, type(schema)):
        kind = "a list" if isinstance(schema, list) else "an object"
        return Fault(path, f"must be {kind}", format_value(value))
    if isinstance(schema, list):
        inner = [(item, schema[0], f"{path}[{i}]") for i, item in enumerate(value)]
    else:
        if missing := [key for key in schema if key not in value and not key.endswith("?")]:
            has = ", ".join(value) or "nothing"
            return Fault(path, f"must have {', '.join(missing)}", has)
        schemas = {key.removesuffix("?"): inner_schema for key, inner_schema in schema.items()}
        inner = [
            (value.get(key), inner_schema, f"{path}.{key}".lstrip("."))
            for key, inner_schema in schemas.items()
            if key in schema or value.get(key) is not None
        ]
    return next(filter(None, (fault(*arguments) for arguments in inner)), None)


def _index_fault(plan: Node) -> Fault | None:
    """Returns the fault if there is no baseline, or a run has the index of no variant."""
    count = len(plan["variants"])
    if not count:
        return Fault("variants", "must have the baseline", "none")
    for i, run in enumerate(plan["runs"]):
        if run["variant"] >= count:
            rule = f"must be below {count}, the number of variants"
            return Fault(f"runs[{i}].variant", rule, run["variant"])
    return None
