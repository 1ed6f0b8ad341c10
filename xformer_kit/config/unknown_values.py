"""A config in which the values at fault are unknown, for what does not depend on them."""

import re
from collections.abc import Iterable
from typing import Any, NoReturn

from xformer_kit.config.settings import SETTINGS
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import KINDS, STACKS, as_node
from xformer_kit.registry import Fault, Node, UnknownValueError

NAMED = {**KINDS, "task": OBJECTIVES}
# Nodes that decide whether a model can be composed.
READ = (*NAMED, "model", "data", "extra", "trainer")
OPERATIONS = (
    "abs add bool contains eq float floordiv format ge getattr getitem gt hash index int iter le"
    " len lt mod mul ne neg pow radd repr rfloordiv rmod rmul rpow rsub rtruediv str sub truediv"
)


def _refuse(*_: Any) -> NoReturn:
    raise UnknownValueError


# In the place of a value that is at fault: to use it in whatever way raises UnknownValueError.
UNKNOWN = type("Unknown", (), {f"__{name}__": _refuse for name in OPERATIONS.split()})()


def with_unknown(config: Node, faults: Iterable[Fault]) -> dict[str, Any] | None:
    """The config with UNKNOWN in the place of each option at fault. None if it is at fault in
    another way, so that it is not known what is composed: a name, a key, a stack.
    """
    known = dict(config)
    for fault in faults:
        group, _, inside = fault.path.partition(".")
        option = re.split(r"[.\[]", inside)[0]
        if group not in config:
            return None
        if group not in READ:
            continue
        if not option or option in STACKS or option not in _options(group, config[group]):
            return None
        known[group] = {**as_node(known[group]), option: UNKNOWN}
    extras = known.get("extra") or {}
    return known | {"extra": {name: extras[name] for name in extras if extras[name] is not UNKNOWN}}


def _options(group: str, node: Any) -> Iterable[str]:
    """The options that a node may have; of others those that it has."""
    if group in NAMED:
        name = as_node(node).get("name")
        return NAMED[group].options(name) if name in NAMED[group] else ()
    return SETTINGS.options(group) if group == "model" else node
