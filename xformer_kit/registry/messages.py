"""Range checks of options and phrases for fault messages, shared by all components."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import wraps
from math import isqrt
from operator import ge, gt, le, lt
from types import SimpleNamespace
from typing import Any, TypeVar

from xformer_kit.registry.fault import Fault, Faults, format_value
from xformer_kit.registry.other_libraries import SYNONYMS

Bound = TypeVar("Bound")
MIN_SHARE = 0.54  # of equal letters in similar words: rotary_embedding, rotary


class UnknownValueError(Exception):
    """Raised when a check reads an option whose own value is invalid."""


class Options(SimpleNamespace):
    """The options of a component as attributes. An option that the component lacks is None, so that
    a check also works for subclasses with fewer options. Reading an option in `invalid` raises
    UnknownValueError.
    """

    def __init__(self, invalid: Iterable[str] = (), /, **options: Any):
        super().__init__(**{name: value for name, value in options.items() if name not in invalid})
        object.__setattr__(self, "_invalid", frozenset(invalid))

    def __getattr__(self, name: str) -> None:
        if name in vars(self)["_invalid"]:
            raise UnknownValueError(name)
        return None

    @property
    def node(self) -> dict[str, Any]:
        """Returns the valid options as a config node."""
        return {name: value for name, value in vars(self).items() if name != "_invalid"}

    def bounded(self, bounds: Mapping[str, Bound]) -> Iterator[tuple[str, Any, Bound]]:
        """Yields (name, value, bound) of each of these options that is not None and not
        invalid.
        """
        for name, bound in bounds.items():
            if name not in vars(self)["_invalid"] and (value := getattr(self, name)) is not None:
                yield name, value, bound


def independent_check(check: Callable[..., Faults]) -> Callable[..., Faults]:
    """Decorator for one of several checks of a component: stops at an option whose value is
    invalid, without stopping the checks after it.
    """

    @wraps(check)
    def checked(*args: Any) -> Faults:
        with suppress(UnknownValueError):
            yield from check(*args)

    return checked


def _out_of_range(
    options: Options,
    bounds: Mapping[str, Any],
    contains: Callable[[Any, Any], bool],
    rule: str,
    fix: str = "",
) -> Faults:
    """Yields a fault per option that `contains(value, bound)` is not true of; None passes. rule: a
    format of the bound.
    """
    for name, value, bound in options.bounded(bounds):
        if not contains(value, bound):
            limits = bound if isinstance(bound, tuple) else (bound,)
            yield Fault(name, rule.format(*limits).strip(), got=value, fix=fix)


def at_least(options: Options, unit: str = "", **bounds: float) -> Faults:
    """Yields a fault per option below its bound; None passes. For a component's `check`."""
    return _out_of_range(options, bounds, ge, f"must be at least {{}} {unit}")


def at_most(options: Options, unit: str = "", **bounds: float) -> Faults:
    """Yields a fault per option above its bound; None passes. For a component's `check`."""
    return _out_of_range(options, bounds, le, f"must be at most {{:,}} {unit}")


def above(options: Options, fix: str = "", **bounds: float) -> Faults:
    """Yields a fault per option at or below its bound; None passes. For a component's `check`."""
    return _out_of_range(options, bounds, gt, "must be above {}", fix)


def in_range(options: Options, **bounds: tuple[float, float]) -> Faults:
    """Yields a fault per option outside [low, high); None passes. For a component's `check`."""
    contains = lambda value, bound: bound[0] <= value < bound[1]
    return _out_of_range(options, bounds, contains, "must be at least {} and below {}")


def in_open_range(
    options: Options, fix: str, closed: bool = False, **bounds: tuple[float, float]
) -> Faults:
    """Yields a fault per option outside (low, high), or with `closed` outside (low, high]; None
    passes. For a component's `check`.

    fix: the last sentence of the message.
    """
    is_below = le if closed else lt
    contains = lambda value, bound: bound[0] < value and is_below(value, bound[1])
    rule = f"must be above {{}} and {'at most' if closed else 'below'} {{}}"
    return _out_of_range(options, bounds, contains, rule, fix)


def not_empty(options: Options, **fixes: str) -> Faults:
    """Yields a fault per option that is an empty text or list, {option: fix}; None passes."""
    for name, value, fix in options.bounded(fixes):
        if not len(value):
            yield Fault(name, "must not be empty", got=format_value(value), fix=fix)


def suggestion(word: object, known: Iterable[str], of: str = "Known") -> str:
    """Returns the fix for an unknown word: 'Did you mean 'a'? Known: a, b.'"""
    known = list(known)
    return f"{did_you_mean(str(word), known)}{of}: {', '.join(map(str, known)) or 'none'}."


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Returns the sentence "Did you mean ...? ", or "" if no known word is similar."""
    close = nearest(str(word), known)
    return f"Did you mean '{close}'? " if close else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word that a user most probably means, or None: a synonym, else the most
    similar one with the same first letter. Others, such as ngpt for gpt, only share letters.
    """
    known = list(known)
    if (synonym := SYNONYMS.get(word.lower())) in known:
        return synonym
    start = word.rfind("/") + 1  # val/los: of the names that start with val/l
    first = word[: start + 1].lower()
    similar = {name.lower()[start:]: name for name in known if name.lower().startswith(first)}
    close = get_close_matches(word.lower()[start:], similar, n=1, cutoff=MIN_SHARE)
    return similar[close[0]] if close else None


def alternatives(values: Iterable[Any]) -> str:
    """Joins alternatives into a phrase: 1, 2 or 4."""
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}" if most else last


def divisors(n: int) -> list[int]:
    """Returns the divisors of n, with 1 and n, in ascending order; not all of them above 10^12."""
    small = [d for d in range(1, min(isqrt(n), 10**6) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def nearest_values(value: int, choices: list[int]) -> str:
    """Returns the four choices nearest to a value, as a phrase."""
    return alternatives(sorted(sorted(choices, key=lambda c: abs(c - value))[:4]))


def first_line(text: str) -> str:
    """Returns the first line of an error's text."""
    return (text.strip().splitlines() or ["for a reason that it did not leave"])[0]


def one_line(error: BaseException, limit: int = 200) -> str:
    """Returns the text of an error on one line, up to the last whole word within the limit, or the
    name of its type if it has none.
    """
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    text = text if len(text) <= limit else text[:limit].rpartition(" ")[0] or text[:limit]
    return text.rstrip(".") or type(error).__name__


def type_phrase(name: str) -> str:
    """Returns the name of a type as a phrase: a whole number, a list of texts or null."""
    singular = {
        "int": "a whole number",
        "float": "a number",
        "str": "a text",
        "bool": "true or false",
        "dict": "a mapping",
    }
    plural = {"int": "whole numbers", "float": "numbers", "str": "texts"}
    found = []
    for word in name.split(" | "):
        *head, last = word.split(" ")
        holds = word.startswith(("list", "mapping"))
        found.append(
            " ".join(("a", *head, plural.get(last, last))) if holds else singular.get(word, word)
        )
    return " or ".join(found)
