"""The list of all laws."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from xformer_kit.laws.case import Case

Law = Callable[[Mapping[str, Any]], str | None]
LAWS: dict[str, Law] = {}
UNDER: dict[str, tuple[str, ...]] = {}  # law -> those that it falls with
SLOW: set[str] = set()  # laws that are tried with each choice, but not with each pair of choices


def law(
    name: str, under: tuple[str, ...] = (), slow: bool = False
) -> Callable[[Callable[[Case], str | None]], Law]:
    """Write a law into the list. It takes a config, raises LawBroken, and returns why it has
    nothing to say, or None.

    A part may name a law that its mathematics breaks: a class attribute `breaks = {"padding":
    "mixes over all slots"}`. It then is exempt from that law and from those that stand `under` it.
    """

    def add(holds: Callable[[Case], str | None]) -> Law:
        @wraps(holds)
        def of(config: Mapping[str, Any]) -> str | None:
            case = Case(config, name, under)
            return case.exempt() or holds(case)

        LAWS[name], UNDER[name] = of, under
        SLOW.update([name] if slow else [])
        return of

    return add
