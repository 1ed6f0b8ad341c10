"""What a run's directory holds of its config and its own components. It may come from elsewhere: it
is read as plain data, within limits, and no code runs.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from xformer_kit.config.difference import differing, flat
from xformer_kit.config.identity import hashed_config
from xformer_kit.plan import KINDS
from xformer_kit.registry import Node, config_error, format_value
from xformer_kit.registry.saved_files import read_object

LARGEST = 2**17  # bytes of a config.yaml; ours have some 3,000, and a parser needs seconds for more
MOST_VALUES = 100_000  # of a config once its aliases are written out
COMPONENTS = "components.json"  # file name -> sha256 of the user's own components
ELSEWHERE = {
    "trainer": ("devices", "num_nodes", "accelerator", "strategy")
}  # where a run trains; it may move
OF_MODEL = ("model", *KINDS, "task", "tokenizer")  # nodes that the weights of a model depend on
SHOWN = 8  # differences in a message


class _Loader(yaml.SafeLoader):
    """YAML 1.2's floats: 1e-3 is a number, as on the command line. A mapping has a key once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if (one := (key.tag, str(key.value))) in seen:
                problem = f"the key {key.value} is given more than once; keep one of them"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(one)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)"
        r"|[0-9][0-9_]*\.[0-9_]*|\.[0-9_]+|\.(?:inf|nan))$"
    ),
    list("-+0123456789."),
)


def read_config(run: str | Path) -> dict[str, Any]:
    """The saved config of a run's directory, as plain data. Raises ConfigError if there is none or
    it cannot be read.
    """
    path = Path(run) / "config.yaml"
    if not path.is_file():
        raise config_error(
            run,
            "is no run; it has no config.yaml",
            fix="Name a directory such as outputs/decoder/2026-11-20_12-00-00.",
        )
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise config_error(
                path,
                f"must have at most {LARGEST:,} bytes",
                got=f"{size:,}",
                fix="It is not what a run saved.",
            )
        return parse_config(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise config_error(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise config_error(path, f"cannot be read as YAML: {error}") from None


def parse_config(text: str, place: str | Path) -> dict[str, Any]:
    """The config in a YAML text; `place` is its file, for messages. Raises ConfigError."""
    try:
        config = yaml.load(text, Loader=_Loader)
        whole = isinstance(config, dict) and _values(config, {}) <= MOST_VALUES
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date of month 13
        raise config_error(
            place, f"cannot be read as YAML: {' '.join(str(error).split())}"
        ) from None
    if not isinstance(config, dict):
        raise config_error(place, "must hold a mapping", got=type(config).__name__)
    if not whole:
        raise config_error(
            place,
            f"must hold at most {MOST_VALUES:,} values with its aliases written out",
            got="more",
            fix="It is not what a run saved.",
        )
    return config


def _values(node: Any, counted: dict[int, int]) -> int:
    """Values in nested lists and mappings, where what an alias stands for counts each time. Raises
    RecursionError for one that contains itself.
    """
    if not isinstance(node, (dict, list)):
        return 1
    if id(node) not in counted:
        inside = node.values() if isinstance(node, dict) else node
        counted[id(node)] = 1 + sum(_values(item, counted) for item in inside)
    return counted[id(node)]


def check_unchanged(run: str | Path, config: Node, state: Node, only: Iterable[str] = ()) -> None:
    """Raises ConfigError if config.yaml is not the config under which a checkpoint was written.

    Only what decides a result is compared, not the layout that a run trains in, and with `only`
    only these nodes.
    """
    before, now = parse_config(state["config"], "its checkpoint's config"), config
    flats = [_compared(one, set(only)) for one in (before, now)]
    if not (paths := differing(flats)):
        return
    missing = "nothing"
    changes = [
        f"{p} was {_shown(flats[0].get(p, missing))} and is {_shown(flats[1].get(p, missing))}"
        for p in paths
    ]
    more = f", and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    raise config_error(
        Path(run) / "config.yaml",
        f"must be as it was when the run was trained; {'; '.join(changes[:SHOWN])}{more}",
        fix="Undo the change, or start a new run.",
    )


def _compared(config: Node, only: set[str]) -> dict[str, Any]:
    kept = {key: node for key, node in hashed_config(config).items() if not only or key in only}
    for group, words in ELSEWHERE.items():
        if isinstance(kept.get(group), Mapping):
            kept[group] = {key: value for key, value in kept[group].items() if key not in words}
    return dict(flat(kept))


def _shown(value: Any) -> str:
    return value if value == "nothing" else format_value(value)


def component_hashes(components: Iterable[str]) -> dict[str, str]:
    """File name -> sha256 of the user's own components."""
    return {
        Path(file).name: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in components
    }


def saved_components(run: str | Path) -> dict[str, str]:
    """File name -> sha256 of the components of its own that a run was begun with. Raises
    ConfigError for a damaged file.
    """
    path, way = Path(run) / COMPONENTS, f"Bring the run's own {COMPONENTS} back."
    try:
        found = read_object(path, {}, way=way)
    except FileNotFoundError:
        return {}
    if not all(_is_file_name(name) and _is_digest(value) for name, value in found.items()):
        raise config_error(
            path,
            "must map the names of files to their sha256",
            got="something else",
            fix=way,
        )
    return found


def check_components(run: str | Path, files: Iterable[str], way: str = "--components FILE") -> None:
    """Raises ConfigError if files of own components that a run was begun with are not given or are
    not as they were.

    `way` is how they are given. The name of a file is shown, but not as a path to import: the run
    may come from elsewhere.
    """
    saved, given = saved_components(run), {Path(file).name: file for file in files}
    if missing := {name: digest for name, digest in saved.items() if name not in given}:
        names = ", ".join(f"'{name}' (sha256 {digest[:12]})" for name, digest in missing.items())
        raise config_error(
            run,
            "was begun with components of its own",
            got=f"no file called {names}",
            fix=f"Give the file that you trust under that name: {way}.",
        )
    for name, digest in saved.items():
        try:
            now = hashlib.sha256(Path(given[name]).expanduser().read_bytes()).hexdigest()
        except OSError as error:
            raise config_error(
                "components", f"cannot read {given[name]}: {error.strerror}"
            ) from None
        if now != digest:
            raise config_error(
                run,
                f"{name} must be as it was when the run began (sha256 {digest[:12]})",
                got=now[:12],
                fix="Bring that version back, or start a new run.",
            )


def _is_file_name(name: Any) -> bool:
    return (
        isinstance(name, str)
        and name.isprintable()
        and name not in ("", "..")
        and Path(name).name == name
    )


def _is_digest(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) is not None
