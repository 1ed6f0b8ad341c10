"""Composition: from overrides to a resolved and validated config, as plain data."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import (
    InterpolationResolutionError,
    KeyValidationError,
    OmegaConfBaseException,
)

from xformer_kit.config.faults.check import check
from xformer_kit.config.faults.machine import run_faults
from xformer_kit.config.faults.result_names import unknown_metric_faults
from xformer_kit.config.faults.unused_options import unused_overrides
from xformer_kit.config.hydra.environment import secret_faults
from xformer_kit.config.hydra.hydra_errors import fault_of_message
from xformer_kit.config.hydra.hydra_session import (
    PRIMARY,
    HydraSession,
    compose_line,
    hydra_word,
    open_session,
)
from xformer_kit.config.line.config_files import own_keys
from xformer_kit.config.line.exclusive_options import without_replaced
from xformer_kit.config.line.normalised import named_over, normalised_config
from xformer_kit.config.line.overrides import (
    INSTRUCTIONS,
    expand,
    instructions,
    overridden_keys,
    parse,
    repeated,
    single_values,
    sweep_faults,
)
from xformer_kit.config.line.task_defaults import with_file_hint
from xformer_kit.config.line.unknown_choices import unknown_component
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS
from xformer_kit.config.options.logger_options import resolve_loggers
from xformer_kit.config.saved.init_from_source import source_faults
from xformer_kit.plan import STACKS
from xformer_kit.registry import (
    ConfigError,
    Fault,
    Node,
    complete_mapping,
    config_error,
    with_own_names,
)
from xformer_kit.text.command_lines import program


def compose(
    overrides: Iterable[str] = (),
    config_dir: str | None = None,
    data: bool = True,
    once: bool = False,
) -> dict[str, Any]:
    """Returns the resolved, validated config of a command line's overrides, as plain data.

    Raises ConfigError with every fault. `components=[file.py]` registers a user's own components
    first; it is not in the config.
    data: whether the corpus is checked, and so must be available.
    once: whether a repeated key is a fault, as on a command line; else the last value counts.
    """
    if isinstance(overrides, str) or not all(isinstance(word, str) for word in overrides or ()):
        raise config_error(
            "compose",
            "takes a list of overrides, such as ['attn.heads=8']",
            got=f"{overrides!r}",
        )
    session, parsed, faults = parse(expand(overrides or ()), config_dir)
    faults += sweep_faults(parsed, "Compose one after the other")
    faults += repeated(parsed) if once else ()
    if "resume" in (values := instructions(parsed)):
        rule = f"is an instruction only of {program()}"
        faults.append(Fault("resume", rule, got=values["resume"], fix="Leave it out."))
    config, config_faults = compose_checked(
        session, single_values(parsed), data=data, line_faults=faults
    )
    faults += config_faults
    if faults:
        raise ConfigError(dict.fromkeys(faults))
    return config


def compose_checked(
    session: HydraSession,
    overrides: Sequence[Override],
    name: str | None = None,
    data: bool = True,
    here: bool | None = None,
    line_faults: Iterable[Fault] = (),
) -> tuple[dict[str, Any], list[Fault]]:
    """Returns (config, faults) of a run.

    here: whether the run takes place on this machine, which is then checked; None: not checked.
    line_faults: faults of the command line; if one of them is an unknown choice, which was left
    out, only options are checked, because a default is in its place. Of an unknown choice in whose
    place is the component that is proposed, only the options that the line sets are checked.
    """
    line_faults = list(line_faults)
    config, faults = _compose_checked(session, overrides, name, data, here, line_faults)
    keys = {o.key_or_group for o in overrides}
    # Options of the line that could not be read; their defaults are in their place.
    unread = {fault.path.partition("=")[0].strip() for fault in line_faults} - keys
    faults = [fault for fault in faults if fault.path not in unread]
    guessed = {fault.path for fault in line_faults} & GROUPS.keys() & keys
    if not faults or not guessed:
        return config, faults
    others = [o for o in overrides if o.key_or_group.partition(".")[0] not in guessed]
    other_faults = [fault for fault in line_faults if fault.path not in guessed]
    independent = _compose_checked(session, others, name, data, here, other_faults)[1]
    of_line = [
        f for f in faults if f.path in keys and f.path.partition(".")[0] in guessed - {f.path}
    ]
    return config, [fault for fault in faults if fault in (*independent, *of_line)]


def _compose_checked(
    session: HydraSession,
    overrides: Sequence[Override],
    name: str | None,
    data: bool,
    here: bool | None,
    line_faults: Sequence[Fault],
) -> tuple[dict[str, Any], list[Fault]]:
    config, faults = compose_overrides(session, overrides, name)
    left_out = {*GROUPS, "model", "experiment"} - {o.key_or_group for o in overrides}
    unknown = any(fault.path in left_out for fault in line_faults)
    sources = [] if here is None else [*source_faults(config)]
    if faults := faults or check(config, data, composition=not unknown):
        return config, [*with_file_hint(session, overrides, config, faults), *sources]
    if unknown:
        return config, sources
    faults = list(unused_overrides(config, overridden_keys(overrides)))
    return config, faults if here is None else [
        *faults,
        *unknown_metric_faults(config),
        *sources,
        *run_faults(config, here),
    ]


def compose_overrides(
    session: HydraSession, overrides: Sequence[Override], name: str | None = None
) -> tuple[dict[str, Any], list[Fault]]:
    """Returns (config, faults) of overrides: the composed config, valid or not; {} with a fault if
    Hydra cannot compose it.
    """
    try:
        config = compose_resolved(session, overrides, name)
        words = [hydra_word(session, override) for override in overrides]
        return from_hydra(config, words, own_keys(overrides, session.config_dir)), []
    except ConfigError as error:
        return {}, list(error.faults)


def compose_resolved(
    session: HydraSession, overrides: Sequence[Override], name: str | None = None
) -> dict[str, Any]:
    """Returns the config that Hydra composes, resolved once: a ${ that a resolved value has is no
    interpolation. Raises ConfigError if it cannot.
    """
    config = None
    try:
        config = compose_line(session, name or PRIMARY, overrides)
        unresolved: Any = OmegaConf.to_container(config, resolve=False)
        if not (secrets := list(secret_faults(unresolved))):
            return to_plain_config(config)
        fault: Any = secrets
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{mark.name}, line {mark.line + 1}" if mark else "config"
        fault = Fault(
            place,
            f"is no YAML: {error.problem or error.context}",
            fix="Mend that line, or the one above it.",
        )
    except UnicodeDecodeError as error:
        found = filter(None, map(_not_utf8, session.files()))
        place, got = next(found, ("config", f"{error}"))
        fault = Fault(place, "must be utf-8 text", got, "Save it as utf-8.")
    except RecursionError:
        rule = "the lists of defaults of the chosen files contain each other"
        fault = Fault("config", rule, fix="Take one of them out.")
    except (HydraException, OmegaConfBaseException, ValueError, TypeError) as error:
        known = _unknown_component(error) or fault_of_message(str(error))
        if known := known or _fault_in_list(error, overrides):
            raise ConfigError(known) from error
        bad_key = _bad_key(error)
        fault = _key_fault(bad_key, str(error)) if bad_key else _hydra_fault(error, config)
    raise ConfigError(fault)


def _unknown_component(error: Exception) -> Fault | None:
    """Returns the fault of a file that chooses an unknown component in its list of defaults."""
    if not isinstance(error, MissingConfigException) or not error.missing_cfg_file:
        return None
    group, _, name = error.missing_cfg_file.rpartition("/")
    return unknown_component(group, name) if group in GROUPS else None


def _fault_in_list(error: Exception, overrides: Iterable[Override]) -> Fault | None:
    """Returns the fault of an override of a key within a list, if that is the error."""
    if found := re.search(r"(?:invalid literal for int\(\).*|Index) '(\w+)'", str(error)):
        for override in overrides:
            parent, _, below = override.key_or_group.partition(f".{found[1]}")
            if below or parent != override.key_or_group:
                rule = f"{parent} is a list, which is set as a whole"
                return Fault(override.key_or_group, rule, fix=f"Try {parent}=[...].")
    return None


def _not_utf8(file: Path) -> tuple[str, str] | None:
    """Returns (line, byte) of the first place at which a file is not utf-8; Python's error has no
    file name.
    """
    data = file.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return f"{file}, line {line}", f"byte 0x{data[error.start]:02X}"
    return None


def _bad_key(error: BaseException | None) -> KeyValidationError | None:
    """Returns the cause of Hydra's error if that is an invalid key such as null."""
    while error is not None and not (isinstance(error, KeyValidationError) and error.full_key):
        error = error.__cause__
    return error


def _key_fault(error: KeyValidationError, message: str) -> Fault:
    """Returns the fault of an invalid key; message: that of Hydra's error."""
    # The error's path starts in the value that is merged into the config, or at the root.
    place = str(error.full_key)
    override = re.match(r"Error merging override \+*([\w.]+)=", message)
    if override and not f"{place}.".startswith(f"{override[1]}."):
        place = f"{override[1]}.{place}"
    return Fault(place, "must have texts as keys", error.key, "Put it in quotes.")


def _hydra_fault(error: Exception, config: DictConfig | None) -> Fault:
    """Returns the fault of a config that Hydra cannot compose, with the place if it is known."""
    reason = " ".join(str(error).split("\n")[0].split()).rstrip(".")
    rule = f"cannot be composed: {reason}"
    if isinstance(error, InterpolationResolutionError) and config is not None:
        for place, text in _unresolved(config, ""):
            fix = r"Name another key, or write \${ for a ${ that stays."
            return Fault(place, rule, text, fix)
    # A list cannot be merged into a mapping, such as the extras.
    if found := re.match(r"Error merging override \+*([\w.]+)=(\[.*\])$", reason):
        key, value = found.groups()
        path = f"{key}.NAME" if key in MAPPING_GROUPS else key
        return Fault(key, "must be a mapping", value, f"Try {path}={{}}.")
    return Fault(getattr(error, "full_key", None) or "config", rule)


def _unresolved(node: DictConfig | ListConfig, path: str) -> Iterator[tuple[str, str]]:
    """Yields (config path, text) of each interpolation that cannot be resolved."""
    raw: Any = OmegaConf.to_container(node, resolve=False)
    is_list = isinstance(node, ListConfig)
    for key in range(len(raw)) if is_list else raw:
        at = f"{path}[{key}]" if is_list else f"{path}.{key}".lstrip(".")
        if OmegaConf.is_interpolation(node, key):
            try:
                node[key]
            except OmegaConfBaseException:
                yield at, str(raw[key])
        elif isinstance(raw[key], (dict, list)):
            yield from _unresolved(node[key], at)


def to_plain_config(config: DictConfig) -> dict[str, Any]:
    """Returns Hydra's composed config as plain data, resolved."""
    OmegaConf.set_struct(config, False)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return {str(key): value for key, value in plain.items()}


def from_hydra(config: Node, words: Iterable[str], own: Collection[str] = ()) -> dict[str, Any]:
    """Returns the plain config that Hydra composed, with the components' own names,
    without instructions of the command line and without stacks that are null.

    words: the overrides of the command line. A component that they choose replaces that of an
    experiment, including its options. own: the config paths that files of the user's own set.

    Raises ConfigError for an option that contradicts the name of its component, and for a name that
    is set over the options of another component.
    """
    plain = {key: value for key, value in config.items() if key not in ("hydra", *INSTRUCTIONS)}
    plain, faults = normalised_config(plain)
    for name, registry in MAPPING_GROUPS.items():
        if plain.get(name) is not None:
            plain[name] = complete_mapping(registry, plain[name])
    if isinstance(plain.get("model"), dict):
        null = [stack for stack in STACKS if plain["model"].get(stack, ...) is None]
        plain["model"] = {key: v for key, v in plain["model"].items() if key not in null}
    keys = {word.lstrip("+~").partition("=")[0] for word in words}
    if (files := config.get("components")) and "components" not in keys:
        rule = "are named by the line, or by the file of an experiment or a study"
        raise config_error("components", rule, got=files, fix="Try components=[FILE].")
    if "logger" in plain:
        plain["logger"] = resolve_loggers(plain["logger"], keys)
    for group, option in _replaced_options(plain, keys):
        del plain[group][option]
    if faults := [*faults, *named_over(plain, keys)]:
        raise ConfigError(faults)
    for group, registry in GROUPS.items():  # a file may name another component without options
        node = plain.get(group)
        node = {"name": node} if isinstance(node, str) else node  # attn: linear
        if isinstance(node, dict) and node.get("name") in registry:
            plain[group] = with_own_names(
                registry, registry.defaults(node["name"]) | node, group, []
            )
    return without_replaced(plain, keys | set(own))


def _replaced_options(config: dict[str, Any], keys: set[str]) -> list[tuple[str, str]]:
    """Returns (group, option) of each option of an experiment's component that the command line has
    replaced by a component without the option; keys: those of the command line.
    """
    replaced = []
    for group in keys & GROUPS.keys():
        node, registry = config.get(group), GROUPS[group]
        if not isinstance(node, dict) or node.get("name") not in registry:
            continue
        overridden = {key.split(".")[1] for key in keys if key.startswith(f"{group}.")}
        own = registry.options(node["name"]).keys() | overridden
        if not node.keys() - own - {"name"}:
            continue  # reading the options of all other components takes long
        every = {option for other in registry for option in registry.options(other)}
        replaced += [(group, option) for option in node if option in every - own]
    return replaced


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
