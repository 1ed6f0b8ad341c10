"""The list of all laws."""

from collections.abc import Callable
from functools import wraps

from xformer_kit.laws.composition import Composition, NotApplicable
from xformer_kit.registry import Node

Law = Callable[[Node], str | None]
LAWS: dict[str, Law] = {}
UNDER: dict[str, tuple[str, ...]] = {}  # law -> those that it falls with
SLOW: set[str] = set()  # laws that are tried with each choice, but not with each pair of choices


def law(
    name: str, under: tuple[str, ...] = (), slow: bool = False
) -> Callable[[Callable[[Composition], None]], Law]:
    """Write a law into the list. It takes a config, raises LawBroken, and returns why it does not
    apply, or None.

    A component may name a law that its mathematics breaks: a class attribute `breaks = {"padding":
    "mixes over all slots"}`. It then is exempt from that law and from those that stand `under` it.
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
