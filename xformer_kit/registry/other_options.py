"""Unknown options, and the options that other libraries call by another name."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from xformer_kit.registry.fault import Fault, format_value
from xformer_kit.registry.messages import alternatives, did_you_mean
from xformer_kit.registry.other_libraries import (
    CORPUS_OF_SUFFIX,
    OTHER_ARGUMENTS,
    OTHER_OPTIONS,
    WITHOUT_OPTION,
)
from xformer_kit.text.command_lines import for_shell, override_text


def unknown_option(
    path: str,
    kind: str,
    name: str,
    key: str,
    options: Iterable[str],
    elsewhere: Mapping[str, list[str]] | None = None,
    value: Any = None,
) -> Fault:
    """Returns the fault of an unknown option.

    elsewhere: option of another component or node -> its config paths. value: the option's value.
    """
    of_node, options = f"{path}.{key}".strip("."), list(dict.fromkeys(options))
    if path and (fault := other_option(of_node, value)):
        return fault
    places = (elsewhere or {}).get(key, [])
    usual = OTHER_OPTIONS.get(key, "").partition("=")[0]
    word = usual.rpartition(".")[2]  # our name of the option, if another library has it
    known_places = [place for place in (elsewhere or {}).get(word, []) if "=" not in place]
    in_node = word in options and (path or word == usual)
    own = [f"{path}.{word}".strip(".")] if in_node else known_places
    ours = usual if usual in own else next(iter(own), "")
    if not places and (fault := other_option(key, value, ours)):
        return replace(fault, path=of_node)
    has = f"It has: {', '.join(options)}." if options else "It has no options."
    if places:
        known = alternatives(with_value(place, value) for place in places)
        fix = f"{has} Try {known}." if path else f"Try {known}."
    elif hint := did_you_mean(key, options):
        fix = f"{hint}{has}"
    else:
        fix = f"{has} Leave it out."
    rule = f"{kind} '{name}' has no option '{key}'"
    return Fault(of_node, "the config has no such key" if kind == "settings" else rule, fix=fix)


def other_option(key: str, value: Any = None, ours: str = "") -> Fault | None:
    """Returns the fault of an option of another library, with our option and the value; None for a
    key that is none. ours: the config path of our option; "" is that of OTHER_OPTIONS.
    """
    got = "" if value is None else format_value(value)
    is_node = isinstance(value, Mapping)  # of optimizer.lr=1e-3, for example
    if key in WITHOUT_OPTION and (not is_node or "." in key):
        rule, fix = WITHOUT_OPTION[key]
        return Fault(key, rule, got, fix)
    if not (other := OTHER_OPTIONS.get(key)):
        return None
    usual, _, needed = other.partition("=")
    ours = ours or usual
    if is_node:
        node = ours.rpartition(".")[0] or ours
        inside = {OTHER_OPTIONS.get(f"{node}.{k}") or f"{node}.{k}": v for k, v in value.items()}
        fix = f"Try {' '.join(with_value(place, item) for place, item in inside.items())}."
    elif needed and (value is None or value is False):  # fp16=false, wandb=null
        fix = "Try logger=csv." if ours == "logger" else "It is off unless set: leave it out."
    else:
        fix = f"Try {f'{ours}={needed}' if needed else with_value(ours, value)}."
    return Fault(key, f"is called {ours} here", got, fix)


def with_value(place: str, value: Any) -> str:
    """Returns the override that sets an option to a value; without a value its path. An override
    such as data=text is returned unchanged.
    """
    if "=" in place:
        return place
    return for_shell(place if value is None else f"{place}={override_text(value)}")


def corpus_of(file: str) -> str:
    """Returns the corpus that reads a file with this name."""
    found = (CORPUS_OF_SUFFIX.get(suffix) for suffix in file.lower().split(".")[1:])
    return next(filter(None, found), "text")


def other_argument(call: str, name: str, value: Any) -> Fault | None:
    """Returns the fault of an argument of another library, in a call of a model, `forward` or
    `generate`; None for a name that is none.
    """
    answer = OTHER_ARGUMENTS[call].get(name)
    if answer is None:
        return None
    if isinstance(answer, str):
        is_plain = isinstance(value, (bool, int, float, str))
        fix = f"Give {answer}={format_value(value)}." if is_plain else f"Give it as {answer}."
        return Fault(name, f"is called {answer} here", fix=fix)
    return Fault(name, answer[0], fix=answer[1].format(name=name))
