"""Overrides -> a config. With `composing.py` under it, and `line.py`, which checks whole command
lines, all that knows Hydra.

Composition is open and validation strict: an override of a key that is no group becomes
`++key=value`, so that Hydra takes every key, and `check` answers the unknown ones all in the same
way.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from xformer_kit.config.callbacks import complete
from xformer_kit.config.check import GROUPS, INNER, check
from xformer_kit.config.composing import Loader, loaded, store
from xformer_kit.config.parts import import_parts
from xformer_kit.config.untaken import ignored
from xformer_kit.data.corpus import CORPORA
from xformer_kit.extra import EXTRAS
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import KINDS, STACKS
from xformer_kit.registry import ConfigError, Registry, complete_many, nearest, shown

INSTRUCTIONS = (
    "parts",
    "resume",
    "study",
)  # of the command line; a saved config holds none of them
SWEEPS = "sweep"  # folder of conf/ with files for W&B


def conf_dir() -> str:
    """The directory of YAML files, absolute: inside the installed package, or beside it in a
    checkout.
    """
    package = Path(__file__).resolve().parents[1]
    for place in (package / "conf", package.parent / "conf"):
        if (place / "train.yaml").is_file():
            return str(place)
    raise ConfigError(f"conf: no train.yaml beside {package}; install xformer_kit anew.")


def compose(
    overrides: Iterable[str] = (),
    config_dir: str | None = None,
    data: bool = True,
    once: bool = False,
) -> dict[str, Any]:
    """The resolved, validated config of a command line's overrides, as plain data.

    Raises ConfigError with every fault. `parts=[file.py]` registers a user's own parts first; it is
    not in the config.
    `data`: whether the corpus must be at hand. `once`: whether a key that comes twice is a fault,
    as on a command line; else the last value counts.
    """
    if isinstance(overrides, str) or not all(isinstance(word, str) for word in overrides or ()):
        raise ConfigError(
            f"compose: takes a list of overrides, such as ['attn.heads=8']; got {overrides!r}."
        )
    loader, parsed, faults = read(unfolded(overrides or ()), config_dir)
    faults += swept(parsed, "Compose one after the other") + (twice(parsed) if once else [])
    if "resume" in (given := instructions(parsed)):
        faults.append(
            f"resume: is an instruction of python train.py alone; got {given['resume']}. Leave it"
            " out."
        )
    config, more = composed(
        loader, [override for override in parsed if not override.is_sweep_override()]
    )
    faults += more or check(config, data) or list(ignored(config, given_keys(parsed)))
    if faults:
        raise ConfigError(dict.fromkeys(faults))
    return config


def unfolded(words: Iterable[str]) -> list[str]:
    """The words of a command line, where a group that is given a mapping, `position={name: rotary,
    theta: 1e6}`, becomes what it stands for: `position=rotary position.theta=1e6`; and a part of a
    part, or of a stack, that is chosen beside its options, `attn.gate=head attn.gate.of=both`, is
    `attn.gate.name=head`: Hydra would put the options in place of the name.
    """
    parser, found = OverridesParser.create(), []
    for word in words:
        group, _, value = word.lstrip("+").partition("=")
        given: Any = None
        if group in (*GROUPS, "model", "trainer") and value.lstrip().startswith("{"):
            with suppress(HydraException):  # what cannot be read is answered with the other words
                override = parser.parse_override(word)
                given = None if override.is_sweep_override() else override.value()
        if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
            found.append(word)
            continue
        chosen = (
            [f"{group}={Override._get_value_element_as_str(given['name'])}"]
            if "name" in given
            else []
        )
        said = {
            key: Override._get_value_element_as_str(item)
            for key, item in given.items()
            if key != "name"
        }
        found += [*chosen, *(f"{group}.{key}={text}" for key, text in said.items())]
    keys = [word.lstrip("+").partition("=")[0] for word in found]
    chooses = [key for key in keys if any(other.startswith(f"{key}.") for other in keys)]
    return [
        _by_name(parser, word) if key in chooses else word
        for word, key in zip(found, keys, strict=True)
    ]


def _by_name(parser: OverridesParser, word: str) -> str:
    """A word that chooses a part of a part or of a stack, or several of them for a sweep, as one
    that changes its name.
    """
    key, _, said = word.lstrip("+").partition("=")
    registry = _of_stack(key) or INNER.get(
        ".".join(key.replace(".cross.", ".attn.").split(".")[-2:])
    )
    with suppress(HydraException):
        override = parser.parse_override(word)
        if registry is None or override.is_delete():
            return word
        values = (
            list(override.sweep_iterator()) if override.is_sweep_override() else [override.value()]
        )
        nodes = [registry.named(value) for value in values]
        if all(isinstance(node, dict) and node.keys() == {"name"} for node in nodes):
            name = said if override.is_sweep_override() else nodes[0]["name"]
            return f"{'++' * word.startswith('++')}{key}.name={name}"
    return word


def _of_stack(key: str) -> Registry | None:
    """The registry of model.decoder.norm, model.decoder.cross,
    model.encoder.variants.local.mask.
    """
    first, *path = key.split(".")
    if first != "model" or len(path) < 2 or path[0] not in STACKS:
        return None
    inside = path[3:] if path[1] == "variants" else path[1:]
    return KINDS.get("attn" if inside == ["cross"] else inside[0]) if len(inside) == 1 else None


def files(parts: Any) -> list[Any]:
    """`parts` as a list: one file may stand without brackets."""
    return parts if isinstance(parts, list) else [parts] if parts else []


def from_hydra(config: DictConfig, words: Iterable[str]) -> dict[str, Any]:
    """Hydra's composed config as the plain dict that runs: resolved, without instructions of the
    command line and without stacks that are null. `words`: the overrides of the command line; a
    part that they choose replaces the one that an experiment has, whose own options go with it.
    """
    plain: Any = OmegaConf.to_container(config, resolve=True)
    plain = {str(key): value for key, value in plain.items() if key not in ("hydra", *INSTRUCTIONS)}
    if plain.get("callbacks") is not None:
        plain["callbacks"] = complete(plain["callbacks"])
    if plain.get("extra") is not None:
        plain["extra"] = complete_many(EXTRAS, plain["extra"])
    if isinstance(plain.get("model"), dict):  # null leaves a stack out
        plain["model"] = {
            k: v for k, v in plain["model"].items() if k not in STACKS or v is not None
        }
    for group, option in _left_behind(
        plain, {word.lstrip("+~").partition("=")[0] for word in words}
    ):
        del plain[group][option]
    return plain


def _left_behind(config: dict[str, Any], keys: set[str]) -> list[tuple[str, str]]:
    """Options of a part that the command line has replaced, as an experiment gives them, which the
    new part does not have.
    """
    found = []
    for group in keys & GROUPS.keys():
        node, registry = config.get(group), GROUPS[group]
        name = node.get("name") if isinstance(node, dict) else None
        if name not in registry:
            continue
        said = {key.split(".")[1] for key in keys if key.startswith(f"{group}.")}
        left = node.keys() - registry.options(name).keys() - said - {"name"}  # type: ignore[union-attr]
        if left:  # the options of all others take long to read
            others = {option for other in registry for option in registry.options(other)}
            found += [(group, option) for option in node if option in left & others]  # type: ignore[union-attr]
    return found


def choices(config_dir: str | None = None) -> dict[str, list[str]]:
    """Every group of the command line and its choices, those in folders by their path: study has
    findings/glu_variants.
    """
    loader = _loader(config_dir)
    known = loader.repository  # the loader's own methods copy all of it for each question
    groups = [
        g for g in known.get_group_options("", ObjectType.GROUP) if g not in ("hydra", SWEEPS)
    ]
    return {group: choices_of(loader, group) for group in sorted(groups)}


def _loader(config_dir: str | None) -> Loader:
    Plugins.instance()
    store()
    path = create_config_search_path(conf_dir())
    if config_dir:
        path.prepend("command-line", str(Path(config_dir).resolve()), anchor="schema")
    return Loader(config_search_path=path)


def read(words: list[str], config_dir: str | None) -> tuple[Loader, list[Override], list[str]]:
    """The overrides, parsed; those that choose something that is not there become faults and are
    left out.
    """
    parser, parsed, faults = OverridesParser.create(), [], []
    for word in words:
        try:
            parsed += parser.parse_overrides([word])
        except (OverrideParseException, HydraException) as error:
            faults.append(
                f"{word}: cannot be read as key=value{_way_out(parser, word, str(error))}"
            )
    try:
        import_parts(files(instructions(parsed).get("parts")), GROUPS.values())
    except ConfigError as error:
        faults += error.faults
    loader = _loader(config_dir)
    parsed += parser.parse_overrides(_suitable(loader, parsed))
    answers = [(override, no_choice(loader, override)) for override in parsed]
    faults += [fault for _, fault in answers if fault]
    lost = tuple(
        f"{override.key_or_group}." for override, fault in answers if fault
    )  # options of what is not there
    kept = [
        o
        for o, fault in answers
        if not fault and not f"{o.key_or_group}.".startswith(lost or ("\n",))
    ]
    return loader, kept, faults


def _way_out(parser: OverridesParser, word: str, error: str) -> str:
    """What to write in place of a word that Hydra's grammar does not have: without spaces around
    its first =, with any other escaped, as in a study's labels and claims, or else the error and a
    hint.
    """
    key, sign, value = word.strip("\"'").partition("=")
    tight = f"{key.strip()}{sign}{value.strip()}"
    escaped = f"{key}{sign}" + re.sub(r"(?<!\\)=", r"\=", value)
    ways = {
        tight: ": leave out the spaces around its =",
        escaped: ": Hydra reads an = within a value as \\=",
    }
    for text, rule in ways.items():
        with suppress(OverrideParseException, HydraException):
            parser.parse_overrides([text])
            return f"{rule}: {shlex.quote(text)}."
    if not sign:
        return f". Give it a value: {key}=VALUE."
    what = " ".join(error.split("\n")[0].split())
    told = "" if word in what else f": {what}"  # else it has no more than the word
    return f"{told}. Quote what the shell or Hydra treats specially."


def _suitable(loader: ConfigLoaderImpl, parsed: list[Override]) -> list[str]:
    """What suits a task that the command line names, where it says nothing else: the experiment
    <task>_<data>, <task>_<form of the data> or <task>, and for a decoder alone the mask that the
    task is made for.
    """
    given = {
        o.key_or_group: str(o.value())
        for o in parsed
        if not o.is_sweep_override() and not o.is_delete()
    }
    task, swept = given.get("task"), {o.key_or_group for o in parsed}
    if task not in OBJECTIVES:
        return []
    found = []
    if "experiment" not in swept:
        names, data = loader.repository.get_group_options("experiment"), given.get("data")
        forms = (
            [f"{task}_{data}", *(f"{task}_{form}" for form in CORPORA[data].forms())]
            if data in CORPORA
            else []
        )
        found.append(f"experiment={next((n for n in (*forms, task) if n in names), 'null')}")
    decides = (
        given.get("experiment", "None") != "None"
    )  # an experiment says itself which model and mask it has
    if (
        not decides
        and "mask" not in swept
        and (mask := OBJECTIVES[task].masks.get(given.get("model", "decoder")))
    ):
        found.append(f"mask={mask}")
    return found


def no_choice(loader: ConfigLoaderImpl, override: Override) -> str | None:
    """The sentence for a group's choice that is not there."""
    group = override.key_or_group
    if not group:
        return f"{override.input_line}: must be key=value."
    if group == SWEEPS:
        return (
            f"{group}: its files are for W&B, not for train.py; try wandb sweep"
            f" conf/{group}/bayes.yaml."
        )
    if group.startswith("hydra") or not loader.repository.group_exists(group):
        return None
    needed = group in GROUPS or group in ("model", "trainer")
    if override.is_delete():
        return f"{group}: a run needs one; it cannot be taken out." if needed else None
    names = choices_of(loader, group)
    values = list(_sweep(override)) if override.is_sweep_override() else [override.value()]
    if values == [None] and needed:
        return f"{group}: must name one of {', '.join(sorted(GROUPS.get(group, names)))}; got null."
    if (
        needed
        and (several := next((value for value in values if isinstance(value, list)), None))
        is not None
    ):
        sweep = ",".join(map(str, several)) or "NAME"
        return (
            f"{group}: takes one name; got {shown(several)}. Choose one, or run each of them: -m"
            f" {group}={sweep}."
        )
    for value in values:
        for name in value if isinstance(value, list) else [value]:
            if name is None or str(name) in names:
                continue
            if str(name).startswith("{") and override.is_sweep_override():
                ways = f"Sweep {group}.OPTION=..., or make them levels of a study's factor"
                return f"{group}: a plain sweep takes names, not options; got {name}. {ways}."
            if group in GROUPS:
                return f"{group}: {GROUPS[group].unknown(str(name))}"
            return (
                f"{group}: no choice is called '{name}'.{nearest(str(name), names)} Known:"
                f" {', '.join(names)}."
            )
    return None


def choices_of(loader: ConfigLoaderImpl, group: str) -> list[str]:
    """The choices of a group, those of its folders by their path: findings/glu_variants,
    findings/gpu/glu_variants.
    """
    known = loader.repository
    folders = known.get_group_options(group, ObjectType.GROUP)
    inside = [
        f"{folder}/{name}" for folder in folders for name in choices_of(loader, f"{group}/{folder}")
    ]
    return [*known.get_group_options(group), *inside]


def _sweep(override: Override) -> Iterator[Any]:
    return (text.strip("'\"") for text in override.sweep_string_iterator())


def opened(loader: ConfigLoaderImpl, override: Override) -> str:
    """The override as Hydra is to get it: a key that is no group is set whether it exists or
    not.
    """
    text, key = override.input_line or "", override.key_or_group
    none = (
        not override.is_sweep_override() and not override.is_delete() and override.value() is None
    )
    if none and key not in GROUPS and loader.repository.group_exists(key):
        return f"~{key}"  # experiment=null: none of the group, as one would write it
    plain = override.is_add() or not (override.is_delete() or override.is_force_add())
    if (
        not plain
        or key.startswith("hydra")
        or override.package
        or loader.repository.group_exists(key)
    ):
        return text
    return f"++{text.lstrip('+')}"


def composed(
    loader: Loader, overrides: list[Override], name: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    texts, faults = [opened(loader, override) for override in overrides], list[str]()
    config = loaded(loader, texts, name, faults)
    return ({}, faults) if config is None else (from_hydra(config, texts), [])


def instructions(parsed: list[Override]) -> dict[str, Any]:
    return {
        o.key_or_group: o.value()
        for o in parsed
        if o.key_or_group in INSTRUCTIONS and not o.is_sweep_override()
    }


def given_keys(parsed: list[Override]) -> list[str]:
    """The keys that overrides set to something."""
    return [
        o.key_or_group
        for o in parsed
        if not o.is_delete() and (o.is_sweep_override() or o.value() is not None)
    ]


def swept(parsed: list[Override], way_out: str = "Put -m before the overrides") -> list[str]:
    return [
        f"{o.key_or_group}: several values are a sweep; got {o.input_line}. {way_out}, or quote a"
        " text."
        for o in parsed
        if o.is_sweep_override()
    ]


def twice(parsed: list[Override]) -> list[str]:
    """Keys that a line gives two values, of which Hydra would take the last: it may also be one
    that ends a sweep.
    """
    given: dict[str, list[Override]] = {}
    for override in parsed:
        if not override.is_delete():
            given.setdefault(f"{override.key_or_group}@{override.package}", []).append(override)
    return [
        f"{some[0].key_or_group}: is given more than once; got"
        f" {', '.join(str(o.input_line) for o in some)}. Keep one of them."
        for some in given.values()
        if len(some) > 1
    ]
