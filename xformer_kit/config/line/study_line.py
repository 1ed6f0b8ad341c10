"""The command line of a study, whose variants are composed and checked by the study's plan."""

import argparse
from pathlib import PurePath
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from xformer_kit.config.hydra.hydra_session import HydraSession, hydra_word
from xformer_kit.config.line.checked_line import CommandLine
from xformer_kit.config.line.composition import compose_checked, compose_resolved
from xformer_kit.config.line.overrides import choice_fault, expand, runs_here
from xformer_kit.config.line.unknown_choices import some_of
from xformer_kit.registry import ConfigError, Fault, Faults
from xformer_kit.text.command_lines import unescaped

# Maps of a study's file that a line replaces: Hydra would merge the two.
REPLACED = tuple(f"study.{key}" for key in ("factors", "baseline", "only", "labels", "tune"))
# Maps that a line replaces if it sets this key of them, on which the meaning of the others depends.
REPLACED_BY_KEY = {"study.budget": "match", "study.design": "name"}
RUN_DIRECTORIES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")


def study_line(
    line: CommandLine,
    session: HydraSession,
    overrides: list[Override],
    faults: list[Fault],
    flags: argparse.Namespace,
) -> CommandLine | None:
    """Returns `line` completed for a study; None if the line has no study, or its config cannot be
    composed, which is appended to `faults`. Raises ConfigError with all faults of a study's line.
    """
    node = _study_node(session, overrides, faults)
    if node is None:
        return None
    faults += _study_faults(overrides, node)
    if faults:
        raise ConfigError(dict.fromkeys(faults))

    def compose(words: list[str]) -> tuple[dict[str, Any], list[Fault]]:
        # Expanded together: one may choose the component whose options the other sets.
        texts = expand([*(str(o.input_line) for o in overrides), *words])
        parsed = OverridesParser.create().parse_overrides(texts)
        if unknown := [fault for o in parsed if (fault := choice_fault(session, o))]:
            return {}, unknown
        if line.study and line.study.get("command"):
            return _external_config(line.study, words), []
        return compose_checked(session, parsed, here=runs_here(overrides))[:2]

    line.study = node
    line.compose = compose
    line.multirun = True
    flag_values = {"--config-dir": flags.config_dir, "--config-name": flags.config_name}
    line.flags = [word for flag, value in flag_values.items() if value for word in (flag, value)]
    words = [
        _study_word(session, o)
        for o in overrides
        if o.key_or_group not in ("hydra.mode", "hydra/sweeper")
    ]
    line.argv = [*line.flags, *words, "hydra/sweeper=study", "hydra.mode=MULTIRUN"]
    return line


def _external_config(node: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """Returns the config of a run of another trainer: its command with the values of the words.
    node: the complete node of its study.
    """
    parsed = OverridesParser.create().parse_overrides(words)
    values = {str(o.key_or_group): unescaped(str(o.value())) for o in parsed}
    command = {name: node.get(name) for name in ("command", "result", "metric")}
    return {**command, "values": values, "seed": 0, "logger": {}}


def _study_node(
    session: HydraSession, overrides: list[Override], faults: list[Fault]
) -> dict[str, Any] | None:
    """Returns the `study` node of the line's config, with its name; None if there is none, or after
    appending to `faults`.
    """
    keys = {o.key_or_group: o for o in overrides}
    chosen = keys.get("study")
    if chosen is not None and chosen.is_sweep_override():
        faults.append(Fault("study", "is a sweep of its own, one at a time", got=chosen.input_line))
        return None
    parser = OverridesParser.create()
    single = [o for o in overrides if not o.is_sweep_override()]
    try:
        cleared = [new for o in single for new in (*_cleared(parser, o), o)]
        config, _ = compose_resolved(session, cleared)
    except ConfigError as error:
        faults += error.faults
        return None
    if (node := config.get("study")) is None:
        return None
    if chosen is None:
        key = next(key for key in keys if key.startswith("study."))
        known = some_of(session.choices("study"))
        faults.append(
            Fault(
                key,
                "belongs to a study, and the line names none",
                fix=f"Add study= and one of {known}.",
            )
        )
        return None
    return node | {"name": node.get("name") or PurePath(unescaped(str(chosen.value()))).stem}


def _study_faults(overrides: list[Override], node: dict[str, Any]) -> Faults:
    """Yields the faults of overrides that cannot be combined with a study; node: of the study."""
    factors = node.get("factors")
    factors = factors if isinstance(factors, dict) else {}  # reported as a fault of the study
    for o in overrides:
        key, got = o.key_or_group, o.input_line
        if node.get("command") and not key.startswith(("study", "hydra", "components")):
            rule = "is an option of a run, and study.command trains the runs"
            yield Fault(key, rule, got, "Leave it out, or write it into the command.")
        if o.is_sweep_override():
            yield Fault(
                key,
                "a study is a sweep already",
                got=got,
                fix="Make it a factor of the study's file, with a level in its baseline, or give it"
                " one value.",
            )
        elif key in factors and not f"{key}.".startswith("study."):
            yield Fault(
                key,
                "is a factor of the study, which sets it in every variant",
                got=got,
                fix="Leave it out, or change study.baseline.",
            )
        if key in RUN_DIRECTORIES:
            yield Fault(
                key,
                "a run of a study lies in study.runs/<key>, where every study finds it",
                got=got,
                fix="Leave it out, or set study.runs.",
            )
        elif key == "hydra/sweeper" and o.value() != "study":
            yield Fault(
                key, "a study is run by the sweeper of that name", got=got, fix="Leave it out."
            )


def _cleared(parser: OverridesParser, override: Override) -> list[Override]:
    """Returns the override that removes a map of the study's file before the line sets it:
    `study.factors={norm: [rms]}` would otherwise be merged with the file's factors. `+` merges.
    """
    key, value = override.key_or_group, override.value()
    if override.is_add() or override.is_delete() or not isinstance(value, dict):
        return []
    replaced = key in REPLACED or REPLACED_BY_KEY.get(key) in map(str, value)
    return [parser.parse_override(f"++{key}=null")] if replaced else []


def _study_word(session: HydraSession, override: Override) -> str:
    """Returns the word for Hydra, which the study also prints to continue it; an addition to a map
    of the file remains an addition.
    """
    if override.key_or_group in REPLACED and override.is_add():
        return str(override.input_line)
    return hydra_word(session, override)
