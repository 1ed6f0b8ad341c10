"""The options of a component, read from its signature."""

import dataclasses
from functools import partial
from typing import Any

from xformer_kit.registry.entries import Option
from xformer_kit.registry.fault import config_error
from xformer_kit.registry.option_types import REQUIRED, fitting, holdable, nested, to_plain
from xformer_kit.registry.signature import meaning, option_groups, parameters


def read_options(
    where: str, component: Any, caller_arguments: tuple[str, ...]
) -> dict[str, Option]:
    """Returns the options of a component, read from its signature. Raises ConfigError for one that
    is no schema.

    where: the component, in messages. caller_arguments: parameters that the model passes by name.
    """
    found: dict[str, Option] = {}
    for key, p in parameters(component).items():
        if (group := option_groups(component).get(key)) is not None:
            found |= read_options(where, group, caller_arguments)
            continue
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            fix = "Name every option instead, so that a typo in a config is an error."
            raise config_error(where, f"takes {p}", fix=fix)
        is_dataclass = dataclasses.is_dataclass(component)
        if key in caller_arguments and not is_dataclass:
            continue  # passed by the model; keyword-only too, of the enclosing component
        if p.kind is not p.KEYWORD_ONLY and not is_dataclass:
            raise config_error(
                where,
                f"'{key}' is positional, and only {', '.join(caller_arguments)} is passed"
                if caller_arguments
                else f"'{key}' is positional, and nothing is passed",
                fix="Put options after a bare *.",
            )
        if p.annotation is p.empty:
            raise config_error(
                where, f"option {key} has no type", fix=f"Annotate it, e.g. {key}: int = 1."
            )
        default = REQUIRED if p.default is p.empty else p.default
        inner = nested(p.annotation)
        if inner is not None and isinstance(default, type):
            default = {"name": inner.name_of(default)}
        if not holdable(to_plain(default)):
            raise config_error(
                where,
                f"no config can hold the default of option {key}, {default!r}",
                fix="Use a number, a text, true, false, null, or a list or mapping of those.",
            )
        found[key] = Option(
            p.annotation, default, partial(meaning, component, key), fitting(p.annotation)
        )
    return found
