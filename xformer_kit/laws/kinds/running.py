"""Checks the laws of a kind for a component that is not part of a model."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from xformer_kit.config import GROUPS
from xformer_kit.files.user_errors import lines_of
from xformer_kit.laws.kinds.options import node_faults, option_nodes
from xformer_kit.laws.kinds.registry import KIND_LAWS, Component, KindLawBroken
from xformer_kit.laws.tiny_composition import NotApplicable


class Outcome(NamedTuple):
    """The outcome of one law for one component."""

    law: str
    verdict: Literal["ok", "broken", "skipped"]
    sentence: str


def check_laws_of_kind(kind: str, name: str) -> list[Outcome]:
    """Checks all laws of a kind for one component, with several values of its options. Returns one
    outcome per law, broken if any value breaks it.
    """
    nodes = option_nodes(kind, name)
    refused = " ".join(map(str, node_faults(kind, nodes[0])))
    if refused:
        sentence = f"it is refused without options of your own: {refused}"
        return [Outcome(law, "skipped", sentence) for law in KIND_LAWS[kind]]
    return [_outcome(kind, law, nodes) for law in KIND_LAWS[kind]]


def _outcome(kind: str, law: str, nodes: list[dict[str, Any]]) -> Outcome:
    """Returns the outcome of a law for a component with each of these nodes."""
    kept, skipped = 0, dict[str, None]()
    for node in nodes:
        component = Component(kind, node, law)
        try:
            KIND_LAWS[kind][law](component)
            kept += 1
        except NotApplicable as error:
            skipped[str(error)] = None
        except KindLawBroken as error:
            return Outcome(law, "broken", str(error))
        except Exception as error:
            return Outcome(law, "broken", f"{_raised(error, component)}. Seen with: {component}")
    if not kept:
        return Outcome(law, "skipped", f"{'; '.join(skipped)}.")
    settings = "its defaults" if kept == 1 else f"{kept} settings of its options"
    return Outcome(law, "ok", f"kept with {settings}.")


def _raised(error: Exception, component: Component) -> str:
    lines = lines_of(error, GROUPS[component.kind][component.node["name"]])
    line = f", in line {lines[-1]}" if lines else ""
    return f"raised {type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}{line}"


def all_outcomes(kind: str) -> Iterator[tuple[str, Outcome]]:
    """Yields (name, outcome) of each law for each registered component of a kind."""
    for name in GROUPS[kind]:
        for outcome in check_laws_of_kind(kind, name):
            yield name, outcome
