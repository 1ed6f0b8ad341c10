"""The registry of laws.

The docstring of a law explains it to somebody whose component breaks it, in three parts:

    What must hold.

    Fails: a sentence of a broken law.
    Fix: what to do.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from xformer_kit.laws.tiny_composition import Composition, NotApplicable
from xformer_kit.registry import Node

Law = Callable[[Node], str | None]
LAWS: dict[str, Law] = {}
PREREQUISITES: dict[str, tuple[str, ...]] = {}  # law -> laws that it depends on
SLOW: set[str] = set()  # laws that are checked for each choice, but not for each pair of choices


def law(
    name: str, prerequisites: tuple[str, ...] = (), slow: bool = False
) -> Callable[[Callable[[Composition], None]], Law]:
    """Returns a decorator that registers a function of a composition, which raises LawBroken, as a
    law: a function of a config that raises LawBroken, and returns why the law does not apply, or
    None.

    prerequisites: laws that this law depends on. A component that breaks a law declares it with a
    reason, `breaks = {"padding": "mixes over all slots"}`, and is exempt from it and from the laws
    that depend on it.
    """

    def register(check: Callable[[Composition], None]) -> Law:
        @wraps(check)
        def check_config(config: Node) -> str | None:
            composition = Composition(config, name)
            for exempt in (name, *prerequisites):
                if exempt in composition.broken_laws:
                    return composition.broken_laws[exempt]
            try:
                check(composition)
            except NotApplicable as error:
                return str(error)
            return None

        LAWS[name], PREREQUISITES[name] = check_config, prerequisites
        if slow:
            SLOW.add(name)
        return check_config

    return register


class Explanation(NamedTuple):
    """The parts of a law's docstring; "" for one that is missing."""

    rule: str
    example: str  # how a broken law reads
    fix: str


def explanation(law: Callable[..., Any]) -> Explanation:
    """Returns what a law checks, how it fails, and what to do."""
    text = " ".join(inspect.cleandoc(law.__doc__ or "").split())
    rule, _, rest = text.partition(" Fails: ")
    example, _, fix = rest.partition(" Fix: ")
    return Explanation(rule, example, fix)
