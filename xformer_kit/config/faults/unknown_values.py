"""Placeholders for the invalid values of a config, for checks that do not depend on them."""

import re
from collections.abc import Iterable
from typing import Any, NoReturn

from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import KINDS, STACKS, as_node
from xformer_kit.registry import Fault, Node, UnknownValueError

COMPONENT_GROUPS = {**KINDS, "task": OBJECTIVES}
# Nodes that decide whether a model can be composed.
COMPOSITION_NODES = (*COMPONENT_GROUPS, "model", "data", "extra", "trainer")
OPERATIONS = (
    "abs add bool contains eq float floordiv format ge getattr getitem gt hash index int iter le"
    " len lt mod mul ne neg pow radd repr rfloordiv rmod rmul rpow rsub rtruediv str sub truediv"
)


def _refuse(*_: Any) -> NoReturn:
    raise UnknownValueError


# The placeholder of an invalid value: each operation on it raises UnknownValueError.
UNKNOWN = type("Unknown", (), {f"__{name}__": _refuse for name in OPERATIONS.split()})()


def with_unknown(config: Node, faults: Iterable[Fault]) -> dict[str, Any] | None:
    """Returns the config with UNKNOWN in the place of each invalid option; None for a fault of a
    name, a key or a stack, because then the composition is unknown.
    """
    known = dict(config)
    for fault in faults:
        group, _, inside = fault.path.partition(".")
        option = re.split(r"[.\[]", inside)[0]
        if group not in config:
            return None
        if group not in COMPOSITION_NODES:
            continue
        if not option or option in STACKS or option not in _options(group, config[group]):
            return None
        known[group] = {**as_node(known[group]), option: UNKNOWN}
    extras = known.get("extra") or {}
    return known | {"extra": {name: extras[name] for name in extras if extras[name] is not UNKNOWN}}


def _options(group: str, node: Any) -> Iterable[str]:
    """Returns the options that the node of a group may have; for other groups, its own keys."""
    if group in COMPONENT_GROUPS:
        name = as_node(node).get("name")
        return COMPONENT_GROUPS[group].options(name) if name in COMPONENT_GROUPS[group] else ()
    return SETTINGS.options(group) if group == "model" else node
