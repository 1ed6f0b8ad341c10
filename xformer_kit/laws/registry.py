"""The registry of laws."""

from collections.abc import Callable
from functools import wraps

from xformer_kit.laws.composition import Composition, NotApplicable
from xformer_kit.registry import Node

Law = Callable[[Node], str | None]
LAWS: dict[str, Law] = {}
UNDER: dict[str, tuple[str, ...]] = {}  # law -> laws that it depends on
SLOW: set[str] = set()  # laws that are checked for each choice, but not for each pair of choices


def law(
    name: str, under: tuple[str, ...] = (), slow: bool = False
) -> Callable[[Callable[[Composition], None]], Law]:
    """Registers a law: a function of a config that raises LawBroken, and returns why the law does
    not apply, or None.

    under: laws that this law depends on. A component that breaks a law declares it with a reason,
    `breaks = {"padding": "mixes over all slots"}`, and is exempt from it and from the laws that
    depend on it.
    """

    def add(holds: Callable[[Composition], None]) -> Law:
        @wraps(holds)
        def of(config: Node) -> str | None:
            case = Composition(config, name, under)
            try:
                if (reason := case.exempt()) is None:
                    holds(case)
            except NotApplicable as error:
                return str(error)
            return reason

        LAWS[name], UNDER[name] = of, under
        SLOW.update([name] if slow else [])
        return of

    return add
