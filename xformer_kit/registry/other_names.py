"""Other names of the components of a kind: those that a config may use, and those that only a
message answers.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Alias(NamedTuple):
    """What another name of a component means."""

    name: str  # the component's own name
    # options that the other name sets (mqa: one key head), or that a config must set (REQUIRED)
    implied: Mapping[str, Any] = MappingProxyType({})


class OtherNames:
    """The other names of the components of one kind.

    accepted: names that mean the component exactly; a config may use them.
    similar: names of something related, which a message answers with the component's own name.
    """

    def __init__(self) -> None:
        self.accepted: dict[str, Alias] = {}
        self.similar: dict[str, str] = {}

    def add(
        self, name: str, accepted: Iterable[str] | Mapping[str, Any], similar: Iterable[str]
    ) -> None:
        """Adds the other names of a component; accepted: {other name: implied options}, or names
        that imply none.
        """
        implied = accepted if isinstance(accepted, Mapping) else {}
        self.accepted |= {other: Alias(name, implied.get(other, {})) for other in accepted}
        self.similar |= dict.fromkeys(similar, name)

    def remove(self, name: str) -> None:
        """Removes the other names of a component."""
        self.accepted = {other: a for other, a in self.accepted.items() if a.name != name}
        self.similar = {other: own for other, own in self.similar.items() if own != name}

    def own_names(self) -> dict[str, str]:
        """Returns {other name: own name} of accepted and similar names."""
        return self.similar | {other: alias.name for other, alias in self.accepted.items()}
