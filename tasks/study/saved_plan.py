"""Reads and validates plan.json of a study."""

import json
from pathlib import Path
from typing import Any

from xformer_kit.files.saved_files import read_object
from xformer_kit.registry import (
    ConfigError,
    Context,
    Fault,
    config_error,
    mismatch,
)
from xformer_kit.study.nodes import Node

PLAN = "plan.json"
FIX = "Start the study again; its runs are kept."
# The schema of plan.json: keys with types, with the schema of the items of a list, or of an object.
# A key with a question mark can be null or missing.
STUDY = {
    "name": str,
    "question": str | None,
    "metric": str,
    "higher_is_better?": bool,
    "margin?": float,
    "also?": list[str],
    "design": {"name": str, "ahead?": float},
    "budget": {"match": str, "tolerance": float, "by?": str},
    "claim?": {"paper?": str},
    "tune?": dict[str, list],
    "forecast?": bool,
    "stop?": {"after": int, "margin": float | None, "alpha": float},
}
VARIANT = {
    "label": str,
    "name": str,
    "levels": dict[str, str],
    "words": list[str],
    "tuned": list[str],
    "knob": list[str],
    "off": float,
    "cost": {"steps": float, "params?": float, "flops?": float, "tokens?": float},
    "rung?": {"name": str, "multiple?": float},
    "source?": str,
}
POINT = {
    "number": int,
    "label": str,
    "status": str,
    "value": float | None,
    "step": int | None,
}
SEARCH = {
    "trials": int,
    "seed": int,
    "end": str | None,
    "refused": int,
    "again": int,
    "confirmed": list[str],
    "commands": dict[str, list],
    "importance": dict,
    "versions?": dict[str, str],
    "points": [POINT],
}
FORECAST = {"time": str, "sha256": str, "predictions": dict[str, dict]}
PLAN_SCHEMA = {
    "study": STUDY,
    "pool": str,
    "command": list[str],
    "components": list[str],
    "variants": [VARIANT],
    "runs": [{"variant": int, "seed": int, "key": str}],
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
    kind = type(schema) if isinstance(schema, (list, dict)) else schema
    if wrong := next(mismatch(kind, value, path, Context()), None):
        return wrong
    if not isinstance(schema, (list, dict)) and "\\u0000" in json.dumps(value):
        return Fault(path, "must have no null character", value)
    inner: list[tuple[Any, Any, str]] = []
    if isinstance(schema, list):
        inner = [(item, schema[0], f"{path}[{i}]") for i, item in enumerate(value)]
    elif isinstance(schema, dict):
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
    indices, known = {run["variant"] for run in plan["runs"]}, range(len(plan["variants"]))
    if known and indices <= {*known}:
        return None
    return Fault(
        "variants", f"must hold the {max(indices, default=0) + 1} that runs name", len(known)
    )
