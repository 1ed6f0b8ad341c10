"""Checks a whole command line: every job of a sweep is checked before Hydra runs one."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException

from xformer_kit.config.faults.machine import why_not_created
from xformer_kit.config.hydra.hydra_session import JOB_NAME, HydraSession, hydra_word
from xformer_kit.config.line.checked_line import CommandLine, words_of_job
from xformer_kit.config.line.composition import compose_checked
from xformer_kit.config.line.config_files import as_list, named_code
from xformer_kit.config.line.flags import flag_faults, parse_flags
from xformer_kit.config.line.overrides import (
    INSTRUCTIONS,
    contradicted_names,
    instructions,
    parse,
    repeated,
    runs_here,
    single_values,
    sweep_faults,
)
from xformer_kit.config.line.resume_line import resume_faults, resumed_length
from xformer_kit.config.line.study_line import study_line
from xformer_kit.config.saved.difference import flat
from xformer_kit.config.saved.identity import config_yaml
from xformer_kit.config.saved.run_directories import runs_below
from xformer_kit.registry import ConfigError, Fault, Faults, config_error

DIRECTORIES = ("hydra.run.dir", "hydra.sweep.dir")
SWEEPER_PARAMS = "hydra.sweeper.params."


def preflight(argv: list[str]) -> CommandLine:
    """Returns the checked command line. Every job of a sweep is checked before Hydra runs one.
    Raises ConfigError with all faults.
    """
    JobRuntime.instance().set("name", JOB_NAME)
    flags = parse_flags(argv)
    session, overrides, faults = parse(flags.overrides, flags.config_dir, flags.config_name)
    values = instructions(overrides)
    line = CommandLine(
        argv=flags.overrides,
        flags=[word for word in argv if word and word not in flags.overrides],
        multirun=flags.multirun or _sets_multirun(overrides),
        components=tuple(as_list(values.get("components"))),
        resume=values.get("resume"),
        help=flags.help,
    )
    faults += flag_faults(flags)
    names_sweeper = any(o.key_or_group == "hydra/sweeper" for o in overrides)
    refused = {id(o): fault for o in overrides if (fault := _refused(o, names_sweeper))}
    faults += [*refused.values(), *_swept_instruction_faults(overrides)]
    overrides = [o for o in overrides if id(o) not in refused]
    faults += _directory_faults(overrides, flags.config_dir)
    overrides = [o for o in overrides if o.key_or_group not in DIRECTORIES or o.value() is not None]
    faults += repeated(overrides)
    if line.help:
        return line
    if line.resume is not None:
        faults += resume_faults(line.resume, overrides, flags.config_dir)
        _raise(faults)
        line.max_steps = resumed_length(overrides)
        return line
    if any(f"{o.key_or_group}.".startswith("study.") for o in overrides) and (
        study := study_line(line, session, overrides, faults, flags)
    ):
        _show_study(study, flags)
        return study
    if not line.multirun:
        faults += sweep_faults(overrides)
        overrides = single_values(overrides)
    trains_here = not (line.multirun or flags.cfg or flags.info or flags.hydra_help)
    _check_jobs(line, session, overrides, faults, whole=trains_here)
    if flags.cfg == "job" and not faults:
        line.shown = _shown(line.configs[0], flags.package, faults)
    _raise(faults)
    line.argv = [*line.flags, *(hydra_word(session, o) for o in overrides)]
    return line


def _check_jobs(
    line: CommandLine,
    session: HydraSession,
    overrides: list[Override],
    faults: list[Fault],
    whole: bool,
) -> None:
    """Sets the config of each job, and with `whole` what Hydra composed; appends their faults."""
    jobs = list(_jobs(overrides, faults)) if line.multirun else [overrides]
    here, line_faults = runs_here(overrides), tuple(faults)
    composed = [
        compose_checked(session, job, here=here, line_faults=line_faults, whole=whole)
        for job in jobs
    ]
    labels = [_label(job, overrides) for job in jobs]
    for job, label, each in zip(jobs, labels, composed, strict=True):
        if len(jobs) > 1:
            found = [*contradicted_names(job), *each.faults]
            faults += [fault.with_fix(f"[job {label}]") for fault in found]
        else:
            faults += each.faults
    words = [words_of_job(hydra_word(session, o) for o in job) for job in jobs]
    line.checked = dict(zip(words, (each.config for each in composed), strict=True))
    line.composed = composed[0].hydra if whole else None


def _show_study(line: CommandLine, flags: Any) -> None:
    """Sets what --cfg job prints of a study: its node, and the config from which its variants
    differ. Raises ConfigError for what only a run can show.
    """
    if flags.info or flags.cfg in ("hydra", "all"):
        flag = f"--info {flags.info}" if flags.info else f"--cfg {flags.cfg}"
        raise config_error(flag, "is for one run, and a study has several", fix="Try --cfg job.")
    if flags.cfg and line.compose is not None:
        config, faults = line.compose([])
        if not faults:
            line.shown = _shown({"study": line.study, **config}, flags.package, faults)
        _raise(faults)


def _shown(config: Any, package: str | None, faults: list[Fault]) -> str:
    """Returns the YAML text of the config that a run saves, or of the part at the path `package`;
    appends the fault of a path that it lacks.
    """
    for key in package.split(".") if package not in (None, "_global_") else ():
        if not isinstance(config, dict) or key not in config:
            faults.append(Fault("--package", "the config has no such key", got=package))
            return ""
        config = config[key]
    return config_yaml(config).removesuffix("...\n")  # of a single value


def _raise(faults: list[Fault]) -> None:
    if faults:
        raise ConfigError(dict.fromkeys(faults))


def _swept_instruction_faults(overrides: list[Override]) -> Faults:
    """Yields the fault of each instruction, and of each key of Hydra, that has several values."""
    for o in overrides:
        is_hydras = o.key_or_group.startswith(("hydra.", "hydra/"))
        if (o.key_or_group in INSTRUCTIONS or is_hydras) and o.is_sweep_override():
            rule = "is one instruction for all jobs, not a choice of a sweep"
            yield Fault(o.key_or_group, rule, got=o.input_line, fix="Give it one value.")


def _refused(override: Override, names_sweeper: bool) -> Fault | None:
    """Returns the fault of an override of Hydra's node that names code, or that has the choices of
    Hydra's own sweeper; names_sweeper: whether the line names another.
    """
    key, value = override.key_or_group, None
    if f"{key}.".startswith(SWEEPER_PARAMS) and not names_sweeper:
        rule = "the choices of a sweep are overrides of the line"
        return Fault(key, rule, got=override.input_line, fix="Try -m KEY=1,2.")
    if not (override.is_delete() or override.is_sweep_override()):
        value = override.value()
    return next(filter(None, map(named_code, (key, *(path for path, _ in flat(value, key))))), None)


def _directory_faults(overrides: list[Override], config_dir: str | None) -> Faults:
    """Yields the faults of directories that cannot be read or created."""
    if config_dir and not Path(config_dir).is_dir():
        yield Fault("--config-dir", "is no directory", got=config_dir)
    names_subdir = any(o.key_or_group == "hydra.sweep.subdir" for o in overrides)
    for o in overrides:
        if o.key_or_group in DIRECTORIES and not o.is_sweep_override():
            value = str(o.value() or "")
            reason = why_not_created(value.split("${")[0] or ".") if value else "it is empty"
            if reason:
                rule = "must name a directory that can be made"
                yield Fault(o.key_or_group, rule, got=f"'{value}' ({reason})")
            elif (
                o.key_or_group == "hydra.sweep.dir"
                and not names_subdir
                and any(run.name.isdecimal() for run in runs_below(Path(value)))
            ):
                rule = "holds a sweep already, which stays as it is"
                yield Fault(o.key_or_group, rule, got=value, fix="Name another directory.")


def _sets_multirun(overrides: list[Override]) -> bool:
    modes = (str(o.value()) for o in overrides if o.key_or_group == "hydra.mode")
    return any(mode.endswith("MULTIRUN") for mode in modes)


def _jobs(overrides: list[Override], faults: list[Fault]) -> Iterator[list[Override]]:
    """Yields the overrides of each job of a plain sweep, the product of all choices; appends to
    `faults` sweeps without a list of values.
    """
    parser = OverridesParser.create()
    alternatives = []  # per override of the line: the override, or each of a sweep
    for o in overrides:
        if not o.is_sweep_override():
            alternatives.append([o])
            continue
        key = o.get_key_element()
        try:
            texts = [f"{key}={value}" for value in o.sweep_string_iterator()]
        except HydraException:
            faults.append(
                Fault(
                    key,
                    "must list its values for a plain sweep",
                    got=o.input_line,
                    fix=f"Try {key}=1,2.",
                )
            )
        else:
            alternatives.append(parser.parse_overrides(texts))
    return map(list, itertools.product(*alternatives))


def _label(job: list[Override], overrides: list[Override]) -> str:
    """Returns the overrides of a job that differ between the jobs of its sweep."""
    swept = {o.key_or_group for o in overrides if o.is_sweep_override()}
    return " ".join(str(o.input_line) for o in job if o.key_or_group in swept)
