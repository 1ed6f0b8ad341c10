"""Is a whole command line right? Every job of a sweep and every variant of a study is checked
before Hydra runs one.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf

from xformer_kit.config.check import check
from xformer_kit.config.composing import Loader
from xformer_kit.config.hydra import (
    INSTRUCTIONS,
    choices_of,
    composed,
    files,
    given_keys,
    instructions,
    loaded,
    no_choice,
    opened,
    read,
    swept,
    twice,
    unfolded,
)
from xformer_kit.config.machine import makeable, run_faults
from xformer_kit.config.untaken import ignored
from xformer_kit.registry import ConfigError


@dataclass
class Line:
    """A command line, checked: what Hydra is to be given, and what is ours."""

    argv: list[str]  # for hydra.main
    multirun: bool = False
    parts: tuple[str, ...] = ()
    resume: str | None = None
    jobs: int = 1
    study: dict[str, Any] | None = None  # the node of a study; the variants are those of `compose`
    # of further words behind the line's
    compose: Callable[[list[str]], tuple[dict[str, Any], list[str]]] | None = None
    # the words of a run of the study, as Hydra is to be given them
    job: Callable[[list[str]], list[str]] = list
    help: bool = False  # the line asks for the page of help and is not checked further


def preflight(argv: list[str]) -> Line:
    """Check a whole command line, every job of a sweep included, before Hydra runs it. Raises
    ConfigError.
    """
    argv = unfolded(argv)
    args = _arguments(argv)
    loader, parsed, faults = read(args.overrides, args.config_dir)
    given = instructions(parsed)
    line = Line(
        argv, args.multirun or _mode(parsed), tuple(files(given.get("parts"))), given.get("resume")
    )
    line.help = args.help
    faults += [
        f"{o.key_or_group}: is one instruction for all jobs, not a choice of a sweep; got"
        f" {o.input_line}."
        for o in parsed
        if o.key_or_group in INSTRUCTIONS and o.is_sweep_override()
    ]
    faults += _directory(parsed, args.config_dir)
    faults += twice(parsed)
    if line.help:
        return line
    if line.resume is not None:
        faults += _alone(parsed)
        if not isinstance(line.resume, str) or not line.resume:
            faults.append(f"resume: must name a run's directory; got {line.resume!r}.")
        if faults:
            raise ConfigError(faults)
        return line
    if (node := _study(loader, parsed, args.config_name, faults)) is not None:
        return _asks(line, node, loader, parsed, faults, args)
    if not line.multirun:
        faults += swept(parsed)
        parsed = [override for override in parsed if not override.is_sweep_override()]
    jobs = list(_jobs(parsed, faults)) if line.multirun else [parsed]
    line.jobs = len(jobs)
    for job in jobs:
        config, more = composed(loader, job, args.config_name)
        found = (
            more
            or check(config)
            or [*ignored(config, given_keys(job)), *run_faults(config, here=_here(parsed))]
        )
        faults += (
            [f"{fault} [job {_label(job, parsed)}]" for fault in found] if len(jobs) > 1 else found
        )
    if faults:
        raise ConfigError(dict.fromkeys(faults))
    argv = [
        o.input_line for o in parsed if o.input_line not in argv
    ] + argv  # an experiment that suits the task
    kept = {o.input_line: text for o, text in ((o, opened(loader, o)) for o in parsed)}
    flags = [
        word for word in argv if word in ("-m", "--multirun")
    ]  # Hydra wants them in front of the overrides
    line.argv = flags + [kept.get(word, word) for word in argv if word not in flags]
    return line


def _study(loader: Loader, parsed: list[Override], name: str | None, faults: list[str]) -> Any:
    """The `study` node of the line's config, with its name; None where the line asks for none."""
    keys = {o.key_or_group: o for o in parsed}
    if not any(key == "study" or key.startswith("study.") for key in keys):
        return None
    if (chosen := keys.get("study")) is not None and chosen.is_sweep_override():
        faults.append(f"study: is a sweep of its own, one at a time; got {chosen.input_line}.")
        return None
    texts = [
        text
        for o in parsed
        if not o.is_sweep_override()
        for text in (*_emptied(o), opened(loader, o))
    ]
    config = loaded(loader, texts, name, faults)
    plain: Any = None if config is None else OmegaConf.to_container(config, resolve=True)
    node = plain and plain.get("study")
    if node is not None and chosen is None:
        known = ", ".join(choices_of(loader, "study"))
        key = next(key for key in keys if key.startswith("study."))
        faults.append(
            f"{key}: belongs to a study, and the line names none. Add study= and one of {known}."
        )
        return None
    return (
        None
        if node is None
        else node | {"name": node.get("name") or str(chosen.value()).rpartition("/")[2]}
    )


ASKED = tuple(
    f"study.{key}" for key in ("factors", "baseline", "only", "labels", "tune")
)  # maps of what is asked


CHOOSE = {
    "study.budget": "match",
    "study.design": "name",
}  # maps whose other keys belong to what this one chooses


def _emptied(override: Override) -> list[str]:
    """The word that takes away what the study's file asks, in front of one that asks something
    else: Hydra lays a mapping over the one that is there, so that `study.factors={norm: [rms]}`
    would ask about the file's factors too. `+` adds.
    """
    key, value = override.key_or_group, override.value()
    if override.is_add() or override.is_delete() or not isinstance(value, dict):
        return []
    return [f"++{key}=null"] if key in ASKED or CHOOSE.get(key) in map(str, value) else []


def _kept(loader: Loader, override: Override) -> str:
    """The word as Hydra gets it, and as the study tells how to go on; what adds to the file's maps
    goes on doing so.
    """
    adds = override.key_or_group in ASKED and override.is_add()
    return str(override.input_line) if adds else opened(loader, override)


RUNS_LIE = "a run of a study lies in study.runs/<key>, where every study finds it"


def _asks(
    line: Line,
    node: dict[str, Any],
    loader: Any,
    parsed: list[Override],
    faults: list[str],
    args: Any,
) -> Line:
    """The line of a study. Its variants are composed by whoever plans it, and checked before the
    first run starts.
    """
    own = [o for o in parsed if o.key_or_group == "study" or o.key_or_group.startswith("study.")]
    faults += [
        f"{o.key_or_group}: a study is a sweep already; got {o.input_line}. Make it a factor: "
        f"study.factors={{{o.key_or_group}: [...]}}, or give it one value."
        for o in parsed
        if o.is_sweep_override()
    ]
    faults += [
        f"{o.key_or_group}: is a factor of the study, which sets it in every variant; got"
        f" {o.input_line}. Leave it out, or change study.baseline."
        for o in parsed
        if o not in own
        and o.key_or_group in (node.get("factors") or {})
        and not o.is_sweep_override()
    ]
    faults += [
        f"{o.key_or_group}: {RUNS_LIE}; got {o.input_line}. Leave it out, or set study.runs."
        for o in parsed
        if o.key_or_group in ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
    ]
    faults += [
        f"hydra/sweeper: a study is run by the sweeper of that name; got {o.input_line}. Leave it"
        " out."
        for o in parsed
        if o.key_or_group == "hydra/sweeper" and o.value() != "study"
    ]
    if faults:
        raise ConfigError(dict.fromkeys(faults))

    def compose(words: list[str]) -> tuple[dict[str, Any], list[str]]:
        texts = unfolded(
            [*(str(o.input_line) for o in parsed), *words]
        )  # together: one may choose what the other is about
        more = OverridesParser.create().parse_overrides(texts)
        missing = [fault for o in more if (fault := no_choice(loader, o))]
        config, wrong = ({}, missing) if missing else composed(loader, more, args.config_name)
        keys = given_keys([o for o in more if not f"{o.key_or_group}.".startswith("study.")])
        return config, wrong or check(config) or [
            *ignored(config, keys),
            *run_faults(config, here=_here(parsed)),
        ]

    def job(words: list[str]) -> list[str]:
        return [
            opened(loader, o) for o in OverridesParser.create().parse_overrides(unfolded(words))
        ]

    line.study, line.compose, line.job, line.multirun = node, compose, job, True
    kept = [
        _kept(loader, o) for o in parsed if o.key_or_group not in ("hydra.mode", "hydra/sweeper")
    ]
    named = {"--config-dir": args.config_dir, "--config-name": args.config_name}
    flags = [word for flag, value in named.items() if value for word in (flag, value)]
    line.argv = [*flags, *kept, "hydra/sweeper=study", "hydra.mode=MULTIRUN"]
    return line


def _arguments(argv: list[str]) -> Any:
    """Hydra's own flags and the overrides, in any order."""
    parser = get_args_parser()

    def refuse(message: str) -> Any:
        raise ConfigError(f"{' '.join(argv)}: {message}. See python train.py --help.")

    parser.error = refuse  # type: ignore[method-assign]
    args = parser.parse_intermixed_args(argv)
    args.overrides = [word for word in args.overrides if word]
    return args


def _directory(parsed: list[Override], config_dir: str | None) -> list[str]:
    """Directories that cannot be read or made."""
    faults = []
    if config_dir and not Path(config_dir).is_dir():
        faults.append(f"--config-dir: is no directory; got {config_dir}.")
    for override in parsed:
        if (
            override.key_or_group in ("hydra.run.dir", "hydra.sweep.dir")
            and not override.is_sweep_override()
        ):
            value = str(override.value() or "")
            if not value or not makeable(value.split("${")[0] or "."):
                faults.append(
                    f"{override.key_or_group}: must name a directory that can be made; got"
                    f" {value!r}."
                )
    return faults


def _mode(parsed: list[Override]) -> bool:
    return any(
        o.key_or_group == "hydra.mode" and str(o.value()).endswith("MULTIRUN") for o in parsed
    )


def _here(parsed: list[Override]) -> bool:
    """Whether the jobs run on this machine; a launcher may send them to another."""
    launchers = [str(o.value()) for o in parsed if o.key_or_group == "hydra/launcher"]
    return not launchers or launchers[-1] in ("basic", "joblib")


def _alone(parsed: list[Override]) -> list[str]:
    others = [o.input_line for o in parsed if o.key_or_group not in INSTRUCTIONS]
    return (
        [
            "resume: goes on with the saved config and takes nothing beside it; got"
            f" {', '.join(map(str, others))}."
        ]
        if others
        else []
    )


def _jobs(parsed: list[Override], faults: list[str]) -> Iterator[list[Override]]:
    """Every job of a plain sweep: the product of all choices."""
    parser = OverridesParser.create()
    each = []
    for override in parsed:
        if override.is_sweep_override():
            key = override.get_key_element()
            try:
                each.append([f"{key}={value}" for value in override.sweep_string_iterator()])
            except HydraException:
                faults.append(
                    f"{key}: must list its values for a plain sweep; got {override.input_line}. Try"
                    f" {key}=1,2."
                )
        else:
            each.append([override.input_line])
    for texts in itertools.product(*each):
        yield parser.parse_overrides([text for text in texts if text])


def _label(job: list[Override], parsed: list[Override]) -> str:
    swept = {o.key_or_group for o in parsed if o.is_sweep_override()}
    return " ".join(str(o.input_line) for o in job if o.key_or_group in swept)
