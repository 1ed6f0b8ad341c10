"""Composition: from the overrides of a line to its checked config, as plain data."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, flag_override

from xformer_kit.config.faults.check import check
from xformer_kit.config.faults.machine import run_faults
from xformer_kit.config.faults.result_names import unknown_metric_faults
from xformer_kit.config.faults.unused_options import unused_overrides
from xformer_kit.config.hydra.environment import secret_faults
from xformer_kit.config.hydra.hydra_session import (
    HydraSession,
    compose_line,
    hydra_word,
    open_session,
    without_hydra,
)
from xformer_kit.config.line.composition_errors import COMPOSITION_ERRORS, composition_fault
from xformer_kit.config.line.config_files import own_keys
from xformer_kit.config.line.mappings import mapping_words, of_its_stacks
from xformer_kit.config.line.normalised import own_config
from xformer_kit.config.line.overrides import (
    instructions,
    overridden_keys,
    parse,
    parse_word,
    repeated,
    single_values,
    sweep_faults,
)
from xformer_kit.config.line.source_model import source_of_files, with_run, with_source
from xformer_kit.config.line.task_defaults import task_of_model
from xformer_kit.config.options.groups import GROUPS
from xformer_kit.config.options.plain_data import plain
from xformer_kit.config.saved.init_from_source import source_faults
from xformer_kit.registry import ConfigError, Fault, config_error
from xformer_kit.text.command_lines import program

if TYPE_CHECKING:
    from xformer_kit.typed import Config


class Composed(NamedTuple):
    """The composed and checked config of a run."""

    config: dict[str, Any]  # plain, with the components' own names; {} if it cannot be composed
    faults: list[Fault]
    hydra: DictConfig | None = None  # what Hydra composed


def compose(
    overrides: "Iterable[str] | Config | Mapping[str, Any]" = (),
    config_dir: str | None = None,
    data: bool = True,
    once: bool = False,
) -> dict[str, Any]:
    """Returns the resolved, validated config of a command line's overrides, as plain data.

    overrides: ["attn=latent", "attn.heads=8"], or the same differences from the default run as
    nested mappings, {"attn": {"name": "latent", "heads": 8}}, also a DictConfig; a text chooses
    from a group, {"attn": "latent"}. `components=[file.py]` registers a user's own components
    first; it is not in the config. Without a task it is one that trains the model's stacks.
    data: whether the corpus is checked, and so must be available.
    once: whether a repeated key is a fault, as on a command line; else the last value counts.

    Raises ConfigError with every fault.
    """
    if isinstance(overrides, Mapping):
        overrides = mapping_words(of_its_stacks(plain(overrides)))
    if isinstance(overrides, str) or not all(isinstance(word, str) for word in overrides or ()):
        raise config_error(
            "compose",
            "takes a list of overrides, such as ['attn.heads=8'], or a mapping",
            got=f"{overrides!r}",
        )
    session, parsed, faults = parse(overrides or (), config_dir)
    faults += sweep_faults(parsed, "Compose one after the other")
    faults += repeated(parsed) if once else ()
    if "resume" in (values := instructions(parsed)):
        rule = f"is an instruction only of {program()}"
        faults.append(Fault("resume", rule, got=values["resume"], fix="Leave it out."))
    line = single_values(parsed)
    line = [o for word in task_of_model(session, line) for o in parse_word(word)] + line
    composed = compose_checked(session, line, data=data, line_faults=faults)
    if faults := [*faults, *composed.faults]:
        raise ConfigError(dict.fromkeys(faults))
    return composed.config


def compose_checked(
    session: HydraSession,
    overrides: Sequence[Override],
    *,
    data: bool = True,
    here: bool | None = None,
    line_faults: Sequence[Fault] = (),
    whole: bool = False,
) -> Composed:
    """Composes and checks the config of a run: the only function that does.

    here: whether the run takes place on this machine, which is then checked; None: not checked.
    line_faults: faults of the command line; if one of them is an unknown choice, which was left
    out, only options are checked, because a default is in its place.
    whole: whether `hydra` of the result has Hydra's own node.
    """
    try:
        config, composed = compose_overrides(session, overrides, whole)
    except ConfigError as error:
        return Composed({}, list(error.faults))
    keys, at_fault = {o.key_or_group for o in overrides}, {fault.path for fault in line_faults}
    unknown = not at_fault.isdisjoint({*GROUPS, "model", "experiment"} - keys)
    sources = [] if here is None else [*source_faults(config)]
    if faults := check(config, data, composition=not unknown):
        faults += sources
    elif unknown:
        faults = sources
    else:
        faults = [*unused_overrides(config, overridden_keys(overrides))]
        if here is not None:
            faults += [*unknown_metric_faults(config), *sources, *run_faults(config, here)]
    # Options of the line that could not be read; their defaults are in their place.
    unread = {path.partition("=")[0].strip() for path in at_fault} - keys
    return Composed(config, [fault for fault in faults if fault.path not in unread], composed)


def compose_overrides(
    session: HydraSession, overrides: Sequence[Override], whole: bool = False
) -> tuple[dict[str, Any], DictConfig]:
    """Returns (config, what Hydra composes) of overrides; the config is plain data with the
    components' own names, valid or not. Raises ConfigError if it cannot be composed.
    """
    source = partial(with_source, lambda line: compose_overrides(session, line)[0])
    line = source(overrides)
    plain, composed = compose_resolved(session, line, whole)
    if line is overrides and (run := source_of_files(plain)):
        line = source(overrides, run)
        plain, composed = compose_resolved(session, line, whole)
        plain["init_from"] = with_run(plain["init_from"], run)
    if line is not overrides and "hydra" in composed:  # the job is found by the words of its line
        with flag_override(composed, ["readonly", "struct"], False):
            words = (hydra_word(session, o) for o in overrides if not o.is_hydra_override())
            composed.hydra.overrides.task = list(words)
    own = own_keys(overrides, session.config_dir)
    return own_config(plain, overrides, own, over_source=line is not overrides), composed


def compose_resolved(
    session: HydraSession, overrides: Sequence[Override], whole: bool = False
) -> tuple[dict[str, Any], DictConfig]:
    """Returns (plain data, what Hydra composes). Each value is resolved once: a ${ that a resolved
    value has is no interpolation. Raises ConfigError if it cannot be composed.
    """
    try:
        composed = compose_line(session, overrides, whole)
        config = without_hydra(composed)
        unresolved: Any = OmegaConf.to_container(config, resolve=False)
        secrets = list(secret_faults(unresolved))
        plain: Any = {} if secrets else OmegaConf.to_container(config, resolve=True)
    except COMPOSITION_ERRORS as error:
        raise ConfigError(composition_fault(error, overrides)) from error
    if secrets:
        raise ConfigError(secrets)
    return plain, composed


def choices(config_dir: str | None = None) -> dict[str, list[str]]:
    """Returns {group: choices} of the command line; a choice in a folder by its path, such as
    findings/glu_variants of study; without other names of components.
    """
    session = open_session(config_dir)
    other = {group: registry.aliases for group, registry in GROUPS.items()}
    return {
        group: [name for name in session.choices(group) if name not in other.get(group, ())]
        for group in session.groups()
    }
