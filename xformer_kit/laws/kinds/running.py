"""Checks the laws of a kind for a component that is not part of a model."""

from typing import Any, Literal, NamedTuple

from xformer_kit.config import GROUPS
from xformer_kit.files.user_errors import raised
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
    try:
        nodes = option_nodes(kind, name)
        refused = " ".join(map(str, node_faults(kind, nodes[0])))
    except Exception as error:  # of its own `check`
        return [Outcome("options", "broken", f"{raised(error, GROUPS[kind][name])}.")]
    if refused:
        return [Outcome("all", "skipped", f"its defaults are refused: {refused}")]
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
            sentence = raised(error, GROUPS[kind][node["name"]])
            return Outcome(law, "broken", f"{sentence}. Seen with: {component}")
    if not kept:
        return Outcome(law, "skipped", f"{'; '.join(skipped)}.")
    settings = "its defaults" if kept == 1 else f"{kept} settings of its options"
    return Outcome(law, "ok", f"kept with {settings}.")
