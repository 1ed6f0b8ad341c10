"""Expands, parses and checks the overrides of a command line one by one."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from xformer_kit.config.hydra.glob_choices import listed
from xformer_kit.config.hydra.hydra_session import SWEEPS, HydraSession, conf_dir, open_session
from xformer_kit.config.line.config_files import (
    as_list,
    brought_components,
    config_files,
    literal,
    store_files,
    values_of,
)
from xformer_kit.config.line.normalised import INSTRUCTIONS
from xformer_kit.config.line.repeated_keys import repeated_key
from xformer_kit.config.line.task_defaults import task_defaults
from xformer_kit.config.line.unknown_choices import PLUGIN_GROUPS, unknown_choice
from xformer_kit.config.options.groups import GROUPS, registry_at
from xformer_kit.config.options.logger_options import LOGGERS
from xformer_kit.config.options.user_components import import_components
from xformer_kit.config.saved.difference import as_literal
from xformer_kit.config.saved.run_directories import named_run
from xformer_kit.registry import ConfigError, Fault, Faults, contradictions, format_value
from xformer_kit.registry.messages import first_line
from xformer_kit.text.command_lines import for_shell, quoted

REQUIRED_GROUPS = (*GROUPS, "model", "trainer")  # every run has a choice of each
NAME_OF_GROUP = rf"^\+*({'|'.join(GROUPS)})\.name="
PLAIN = re.compile(
    r"(?!(?i:null|true|false|nan|inf)$)[A-Za-z_][\w./-]*"
)  # Hydra parses it as this text
KEY = r"[+~]*[A-Za-z_][\w./@]*"
NO_TEXT = r"$|[\[{'\"]|\w+\(|.*\$\{"  # a value that is meant as a list, a sweep, ...
# ValueError: a number of more than 4,300 digits
UNREADABLE = (HydraException, ValueError)
MAX_SHOWN = 80  # characters of a word in a message
TEXT = r"(study\.(?:command|result))=([^'\"].*)"  # a text with braces and spaces
RUN = rf"(resume|init_from\.run)=({PLAIN.pattern})"
UNREAD = "It may be one of components, which could not be read."


def expand(words: Iterable[str]) -> list[str]:
    """Returns the words of a command line in the form that Hydra composes as intended.

    A group that is given a mapping, `position={name: rotary, theta: 1e6}`, becomes
    `position=rotary position.theta=1e6`, and `attn.name=linear` becomes `attn=linear`. A component
    of a component, or of a stack, that is given together with its options, `attn.gate=head
    attn.gate.of=both`, becomes `attn.gate.name=head`: Hydra would replace the name by the options.
    `init_from=RUN` becomes `init_from.run=RUN`, and another name of a run is its directory. A
    command of a study is put into quotes.
    """
    parser, expanded = OverridesParser.create(), []
    for word in words:
        word = re.sub(r"^init_from=(?!\{)", "init_from.run=", word)
        if found := re.fullmatch(RUN, word):
            word = f"{found[1]}={value_text(named_run(found[2]))}"
        if found := re.fullmatch(TEXT, word):
            word = f"{found[1]}={quoted(found[2])}"
        expanded += _expand_mapping(parser, re.sub(NAME_OF_GROUP, r"\1=", word))
    keys = [word.lstrip("+").partition("=")[0] for word in expanded]
    with_options = {key for key in keys if any(other.startswith(f"{key}.") for other in keys)}
    return [
        _by_name(parser, word) if key in with_options else word
        for word, key in zip(expanded, keys, strict=True)
    ]


def _expand_mapping(parser: OverridesParser, word: str) -> list[str]:
    """Returns an override that sets a group to a mapping as overrides of its name and options; any
    other word unchanged.
    """
    group, _, value = word.lstrip("+").partition("=")
    if group not in REQUIRED_GROUPS or not value.lstrip().startswith("{"):
        return [word]
    try:
        override = parser.parse_override(word)
    except UNREADABLE:  # reported when all words are read
        return [word]
    node = None if override.is_sweep_override() else override.value()
    if not isinstance(node, dict) or not all(isinstance(key, str) for key in node):
        return [word]
    name = [f"{group}={value_text(node.pop('name'))}"] if "name" in node else []
    if group == "logger" and node and node.keys() <= set(LOGGERS):  # several: {NAME: options}
        name = [f"{group}={value_text([*node])}"]
    return [*name, *(f"{group}.{key}={value_text(item)}" for key, item in node.items())]


def value_text(value: Any) -> str:
    """Returns a value in Hydra's grammar."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{value_text(k)}:{value_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(value_text, value)) + "]"
    if isinstance(value, str) and not PLAIN.fullmatch(value):
        return QuotedString(value, Quote.single).with_quotes()
    return str(as_literal(value))


def _by_name(parser: OverridesParser, word: str) -> str:
    """Returns `attn.gate=head` as `attn.gate.name=head`, also for the names of a sweep."""
    key, _, text = word.lstrip("+").partition("=")
    registry = registry_at(key) if key not in GROUPS else None
    with suppress(*UNREADABLE):
        override = parser.parse_override(word)
        if registry is None or override.is_delete():
            return word
        swept = override.is_sweep_override()
        values = list(override.sweep_iterator()) if swept else [override.value()]
        nodes = [registry.as_node(value) for value in values]
        if all(isinstance(node, dict) and node.keys() == {"name"} for node in nodes):
            name = text if swept else nodes[0]["name"]
            return f"{'++' * word.startswith('++')}{key}.name={name}"
    return word


@lru_cache(maxsize=1024)
def parse_word(word: str) -> list[Override]:
    """Returns the overrides of a word, which no caller changes. Hydra takes a millisecond for each
    word, and the lines of a study have most words in common.
    """
    return OverridesParser.create().parse_overrides([word])


def parse(
    words: Iterable[str], config_dir: str | None = None, primary: str | None = None
) -> tuple[HydraSession, list[Override], list[Fault]]:
    """Returns (session, overrides, faults) of the words of a line, which are expanded.

    The user's own components, of the line or of its files, are imported first. The defaults of the
    task are added before the overrides of the line. An override with an unknown choice is a fault
    and left out, with its options; so is one with a mapping that has a key twice.
    """
    parser, overrides = OverridesParser.create(), list[Override]()
    words = list(words)
    repeats = {word: fault for word in words if (fault := repeated_key(word))}
    faults = list(repeats.values())
    for word in expand(word for word in words if word not in repeats):
        try:
            overrides += parse_word(word)
        except UNREADABLE as error:
            faults.append(_unreadable(parser, word, error))
    overrides = parser.parse_overrides(brought_components(overrides, config_dir)) + overrides
    try:
        import_components(as_list(instructions(overrides).get("components")), GROUPS.values())
        unread = False
    except ConfigError as error:
        faults += error.faults
        unread = True
    faults += contradicted_names(overrides)
    file_faults = store_files(overrides, config_dir)
    session = open_session(config_dir, primary)
    known = list[Override]()
    left_out: tuple[str, ...] = ()
    for given in overrides:
        override = found = listed(session, given)
        if isinstance(override, Override):
            known.append(override)
            found = file_faults.get(given.key_or_group) or choice_fault(session, override)
        if isinstance(found, Fault):
            if unread and given.key_or_group in GROUPS:
                found = replace(found, fix=UNREAD)
            faults.append(found)
            left_out += (f"{given.key_or_group}.",)
    known = [o for o in known if not f"{o.key_or_group}.".startswith(left_out)]
    known = parser.parse_overrides(task_defaults(session, known)) + known
    return session, known, faults


def contradicted_names(overrides: list[Override]) -> list[Fault]:
    """Returns the fault of each option that another name of the line's component contradicts, as
    attn=mqa attn.kv_heads=2.
    """
    values = {o.key_or_group: o.value() for o in overrides if not o.is_sweep_override()}
    faults = []
    for group, name in values.items():
        if (registry := GROUPS.get(group)) and isinstance(name, str) and name not in registry:
            options = {
                k.partition(".")[2]: v for k, v in values.items() if k.startswith(f"{group}.")
            }
            faults += contradictions(registry, name, options, group)
    return faults


def _unreadable(parser: OverridesParser, word: str, error: Exception) -> Fault:
    """Returns the fault of a word that Hydra's grammar does not match; its fix is the word with
    quotes around its text, if that can be parsed.
    """
    key, sign, value = word.partition("=")
    rule, fix = "cannot be read as key=value", "Quote what the shell or Hydra treats specially."
    if not sign and key.endswith((".yaml", ".yml")):
        fix = f"Try {for_shell(f'experiment={key}')}, or {for_shell(f'study={key}')}."
    elif not sign:
        fix = f"Give it a value, without spaces around the =: {key}=VALUE."
    else:
        reason = first_line(str(error))
        rule += "" if word in reason else f": {reason}"  # it may only repeat the word
        if re.fullmatch(KEY, key) and not re.match(NO_TEXT, value):
            with suppress(*UNREADABLE):
                parser.parse_overrides([text := f"{key}={quoted(value)}"])
                fix = f"Hydra reads such a text in quotes: {for_shell(text)}."
    return Fault(word if len(word) <= MAX_SHOWN else f"{word[:MAX_SHOWN]}...", rule, fix=fix)


def choice_fault(session: HydraSession, override: Override) -> Fault | None:
    """Returns the fault of an override with an unknown choice of a group; None if the choice is
    known, or the key is no group.
    """
    group = override.key_or_group
    if not group:
        return Fault(override.input_line, "must be key=value")
    if group == SWEEPS:
        fix = f"Try wandb sweep {for_shell(os.path.relpath(conf_dir()))}/{SWEEPS}/FILE."
        return Fault(group, "its files are for W&B, not for a run", fix=fix)
    if (group.startswith("hydra") and group not in PLUGIN_GROUPS) or not session.is_group(group):
        return None
    if override.is_delete():
        rule = "a run needs one; it cannot be taken out"
        return Fault(group, rule, fix="Name another.") if group in REQUIRED_GROUPS else None
    names = [*session.choices(group), *config_files(override)]
    for value in values_of(override):
        several = isinstance(value, list) and (group == "logger" or group not in REQUIRED_GROUPS)
        is_none = value is None or (isinstance(value, list) and not (several and value))
        if group in REQUIRED_GROUPS and is_none:
            known = ", ".join(sorted(GROUPS.get(group, names)))
            return Fault(group, "must be a name", format_value(value), f"Known: {known}.")
        for name in value if several else [value]:
            if name is not None and str(name) not in names:
                return unknown_choice(group, str(name), names)
    return None


def instructions(overrides: list[Override]) -> dict[str, Any]:
    """Returns {key: value} of the instructions of a command line, see INSTRUCTIONS."""
    single = (o for o in overrides if not o.is_sweep_override())
    return {o.key_or_group: literal(o.value()) for o in single if o.key_or_group in INSTRUCTIONS}


def overridden_keys(overrides: Iterable[Override]) -> list[str]:
    """Returns the keys that overrides set to a value other than null."""
    setting = (o for o in overrides if not o.is_delete())
    return [o.key_or_group for o in setting if o.is_sweep_override() or o.value() is not None]


def runs_here(overrides: Iterable[Override]) -> bool:
    """Whether the jobs run on this machine; a launcher may send them to another."""
    launchers = [str(o.value()) for o in overrides if o.key_or_group == "hydra/launcher"]
    return not launchers or launchers[-1] in ("basic", "joblib")


def sweep_faults(overrides: Iterable[Override], fix: str = "Put -m before the overrides") -> Faults:
    """Yields the fault of each sweep in a command line of a single run."""
    for o in overrides:
        if o.is_sweep_override():
            rule = "several values are a sweep"
            yield Fault(o.key_or_group, rule, o.input_line, f"{fix}, or quote a text with commas.")


def single_values(overrides: Iterable[Override]) -> list[Override]:
    """Returns the overrides that are no sweeps, without options of components that a sweep
    chooses.
    """
    overrides = list(overrides)
    swept = [o.key_or_group for o in overrides if o.is_sweep_override()]
    options = tuple(f"{key}." for key in swept if key in GROUPS)
    single = [o for o in overrides if not o.is_sweep_override()]
    return [o for o in single if not o.key_or_group.startswith(options)]


def repeated(overrides: Iterable[Override]) -> Faults:
    """Yields the fault of each key that is set more than once: Hydra would use the last value,
    which may replace a sweep.
    """
    of_key: dict[str, list[Override]] = {}
    for override in overrides:
        if not override.is_delete():
            of_key.setdefault(f"{override.key_or_group}@{override.package}", []).append(override)
    for same_key in of_key.values():
        if len(same_key) > 1:
            lines = ", ".join(str(o.input_line) for o in same_key)
            key = same_key[0].key_or_group
            yield Fault(key, "is given more than once", got=lines, fix="Keep one of them.")
