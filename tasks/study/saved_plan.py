"""plan.json of a study, read as plain data: every value that a command reads has the type that a
study writes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tasks.study.resolve import PLAN
from xformer_kit.registry import ConfigError, Fault, shown
from xformer_kit.registry.saved_files import read_object
from xformer_kit.study.nodes import Node

HUGE = 1e300
WAY = "Start the study again; its runs are kept."


class Check(NamedTuple):
    """A value: what it must be, in words, and whether it is."""

    what: str
    fits: Callable[[Any], bool]

    def __or__(self, other: "Check") -> "Check":
        return Check(
            f"{self.what} or {other.what}", lambda value: self.fits(value) or other.fits(value)
        )


def _is_number(value: Any) -> bool:
    """A finite one: json also reads NaN and Infinity."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < HUGE


NULL = Check("null", lambda value: value is None)
TEXT = Check(
    "a text without a null character", lambda value: isinstance(value, str) and "\0" not in value
)
WORD = Check("an override such as model.dim=64", lambda value: TEXT.fits(value) and "=" in value)
NUMBER = Check("a number", _is_number)
ABOVE = Check("a number above 0", lambda value: _is_number(value) and value > 0)
COUNT = Check("a whole number from 0 on", lambda value: type(value) is int and value >= 0)
TRUTH = Check("true or false", lambda value: isinstance(value, bool))
OBJECT = Check("an object", lambda value: isinstance(value, dict))
LEVELS = Check(
    "an object of texts",
    lambda value: isinstance(value, dict) and all(map(TEXT.fits, value.values())),
)
LISTS = Check(
    "an object of lists",
    lambda value: isinstance(value, dict) and all(isinstance(v, list) for v in value.values()),
)


class Nullable(NamedTuple):
    """A shape, or null, or no such key."""

    shape: Any


STUDY = {
    "name": TEXT,
    "question": TEXT | NULL,
    "metric": TEXT,
    "higher_is_better": Nullable(TRUTH),
    "margin": Nullable(ABOVE),
    "also": Nullable([TEXT]),
    "design": {"name": TEXT, "ahead": Nullable(NUMBER)},
    "budget": {"match": TEXT, "tolerance": ABOVE, "by": Nullable(TEXT)},
    "claim": Nullable({"paper": Nullable(TEXT)}),
    "tune": Nullable(LISTS),
    "stop": Nullable({"after": COUNT, "margin": NUMBER | NULL, "alpha": ABOVE}),
}
COST = {"steps": NUMBER} | {name: Nullable(NUMBER) for name in ("params", "flops", "tokens")}
RUNG = {"name": TEXT, "multiple": NUMBER}
VARIANT = {
    "label": TEXT,
    "name": TEXT,
    "levels": LEVELS,
    "words": [TEXT],
    "tuned": [WORD],
    "knob": [TEXT],
    "off": NUMBER,
    "cost": COST,
    "rung": Nullable(RUNG),
}
POINT = {
    "number": COUNT,
    "label": TEXT,
    "status": TEXT,
    "value": NUMBER | NULL,
    "step": COUNT | NULL,
}
SEARCH = {
    "trials": COUNT,
    "seed": COUNT,
    "end": TEXT | NULL,
    "refused": COUNT,
    "again": COUNT,
    "confirmed": [TEXT],
    "commands": LISTS,
    "importance": OBJECT,
    "versions": Nullable(LEVELS),
    "points": [POINT],
}
SHAPE = {
    "study": STUDY,
    "pool": TEXT,
    "command": [TEXT],
    "parts": [TEXT],
    "variants": [VARIANT],
    "runs": [{"variant": COUNT, "seed": COUNT, "key": TEXT}],
    "search": Nullable(SEARCH),
}


def read_plan(folder: Path) -> dict:
    """plan.json of a study's directory. Raises ConfigError where there is none or it is damaged."""
    path = folder / PLAN
    try:
        plan = read_object(path, {}, way=WAY)
    except FileNotFoundError:
        raise ConfigError(
            Fault(
                str(folder),
                f"is no study; it has no {PLAN}",
                fix="Name a study's directory such as outputs/studies/norm_placement.",
            )
        ) from None
    if found := fault(plan, SHAPE, "") or _beyond(plan):
        raise ConfigError(f"{path}: {found}. {WAY}")
    return plan


def fault(value: Any, shape: Any, place: str) -> str | None:
    """The first value that is not of its shape: its place, what it must be and what it is; None
    where all are.
    """
    if isinstance(shape, Check):
        return None if shape.fits(value) else f"{place} must be {shape.what}; got {shown(value)}"
    if isinstance(shape, Nullable):
        return None if value is None else fault(value, shape.shape, place)
    if not isinstance(value, type(shape)):
        return (
            f"{place} must be {'a list' if isinstance(shape, list) else 'an object'}; got"
            f" {shown(value)}"
        )
    if isinstance(shape, list):
        each = (fault(one, shape[0], f"{place}[{i}]") for i, one in enumerate(value))
        return next((found for found in each if found), None)
    inner = (fault(value.get(key), one, f"{place}.{key}".lstrip(".")) for key, one in shape.items())
    return _missing(value, shape, place) or next((found for found in inner if found), None)


def _missing(value: Node, shape: Node, place: str) -> str | None:
    """Keys that an object must have and lacks."""
    lacks = [
        key for key, one in shape.items() if key not in value and not isinstance(one, Nullable)
    ]
    whose = f"{place} must" if place else "must"
    return (
        f"{whose} have {', '.join(lacks)}; got {', '.join(value) or 'nothing'}" if lacks else None
    )


def _beyond(plan: Node) -> str | None:
    """A study without a baseline, or a run of a variant that there is not."""
    count = len(plan["variants"])
    if not count:
        return "variants must have the baseline; got none"
    lost = next((i for i, run in enumerate(plan["runs"]) if run["variant"] >= count), None)
    if lost is None:
        return None
    return (
        f"runs[{lost}].variant must be below {count}, the number of variants; got"
        f" {plan['runs'][lost]['variant']}"
    )
