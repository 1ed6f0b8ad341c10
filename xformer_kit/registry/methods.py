"""Methods of a component whose names are nearly those of its contract."""

import inspect
from difflib import get_close_matches
from typing import Any

from xformer_kit.registry.fault import config_error

PACKAGE = "xformer_kit."
SIMILAR = 0.8  # least share of equal letters


def check_methods(path: str, component: Any, base: type | None) -> None:
    """Raises ConfigError for a method of a user's class that nothing would call, and that is nearly
    one of those of its base: sublayer_outputs for sublayer_output. A test checks the package's own
    classes, since comparing their names takes time at each start.
    """
    own_class = component.__module__.startswith(PACKAGE)
    if base is None or own_class or not inspect.isclass(component):
        return
    inherited = set(dir(base)) | {"forward"}
    own = [name for name, value in vars(component).items() if _is_method(value)]
    for name in own:
        if name.startswith("_") or name in inherited:
            continue
        for near in get_close_matches(name, _methods(base), n=1, cutoff=SIMILAR):
            raise config_error(
                path,
                f"'{name}' is no method of {base.__name__}, and nothing calls it",
                fix=f"Did you mean '{near}'? Else give it a name with _ in front.",
            )


def _methods(base: type) -> list[str]:
    """The methods that a component may define: those that the package's base classes define."""
    classes = [one for one in base.__mro__ if one.__module__.startswith("xformer_kit.")]
    found = {name for one in classes for name, value in vars(one).items() if _is_method(value)}
    return [name for name in sorted(found | {"forward"}) if not name.startswith("_")]


def _is_method(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)
