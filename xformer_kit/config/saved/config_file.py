"""The config and the list of own components in a run's directory, and checks that they are
unchanged.

The directory may be untrusted: the files are read as plain data, within limits, and no code runs.
"""

import hashlib
import re
from collections.abc import Collection, Iterable
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from xformer_kit.config.options.trainer_schema import PLACES
from xformer_kit.config.saved.difference import differing, flat
from xformer_kit.config.saved.identity import FLOAT, hashed_config
from xformer_kit.config.saved.run_directories import example_of_run
from xformer_kit.files.saved_files import read_object, readable
from xformer_kit.plan import KINDS
from xformer_kit.registry import Node, config_error, format_value
from xformer_kit.registry.messages import one_line
from xformer_kit.text.user_path import user_path

# A config of ours has some 3,000 bytes, and a parser needs seconds for more than this.
MAX_CONFIG_BYTES = 2**17
MAX_VALUES = 100_000  # values of a config with its YAML aliases expanded
COMPONENTS = "components.json"  # file name -> sha256 of the user's own components
# Options of the trainer that set where a run trains, which may change when it resumes.
DEVICE_OPTIONS = ("devices", "num_nodes", "accelerator", "strategy", *PLACES)
MODEL_NODES = (
    "model",
    *KINDS,
    "task",
    "tokenizer",
    "lora",
)  # nodes that the weights of a model depend on
NEEDED = ("model", "task", "data", "trainer")  # nodes that every config has
MAX_CHANGES = 8  # in a message


class _Loader(yaml.SafeLoader):
    """YAML loader with the floats of YAML 1.2: 1e-3 is a number, as on the command line. A key of a
    mapping that is repeated, or no text, is an error.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set[str]()
        for key, _ in node.value:
            is_text = key.tag.rpartition(":")[2] in ("str", "merge")
            if not is_text or key.value in keys:
                problem = "is given more than once" if is_text else "is no text; put it in quotes"
                problem = f"the key {key.value} {problem}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(*FLOAT)


def read_config(run: str | Path) -> dict[str, Any]:
    """Returns the saved config of a run's directory as plain data. Raises ConfigError if there is
    none or it cannot be read.
    """
    path = Path(run) / "config.yaml"
    if not path.is_file():
        raise config_error(
            run,
            "is no run; it has no config.yaml",
            fix=example_of_run(run),
        )
    try:
        if (size := path.stat().st_size) > MAX_CONFIG_BYTES:
            raise config_error(
                path,
                f"must have at most {MAX_CONFIG_BYTES:,} bytes",
                got=f"{size:,}",
                fix="It is not what a run saved.",
            )
        config = parse_config(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise config_error(path, f"cannot be read: {one_line(error)}") from None
    for key in NEEDED:
        if not isinstance(config.get(key), dict):
            got = format_value(config[key]) if key in config else "no such key"
            fix = "It is not what a run saved."
            raise config_error(path, f"must have the mapping {key}", got=got, fix=fix)
    return config


def parse_config(text: str, place: str | Path) -> dict[str, Any]:
    """Returns the config in a YAML text; place: its file, for messages. Raises ConfigError."""
    try:
        config = deepcopy(_parsed(text))  # a caller may change it
        in_limit = isinstance(config, dict) and _count_values(config, {}) <= MAX_VALUES
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date of month 13
        raise config_error(place, f"cannot be read as YAML: {one_line(error, 1000)}") from None
    if not isinstance(config, dict):
        raise config_error(place, "must hold a mapping", got=type(config).__name__)
    if not in_limit:
        raise config_error(
            place,
            f"must hold at most {MAX_VALUES:,} values with its aliases written out",
            got="more",
            fix="It is not what a run saved.",
        )
    return config


@lru_cache(maxsize=8)  # a resume needs the same text for each of its checks, 40 ms each
def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


def _count_values(node: Any, counts: dict[int, int]) -> int:
    """Returns the number of values in nested lists and mappings, in which the target of an alias
    counts each time; counts: of nodes that were counted before, by id. Raises RecursionError for a
    node that contains itself.
    """
    if not isinstance(node, (dict, list)):
        return 1
    if id(node) not in counts:
        items = node.values() if isinstance(node, dict) else node
        counts[id(node)] = 1 + sum(_count_values(item, counts) for item in items)
    return counts[id(node)]


def check_unchanged(
    run: str | Path,
    config: Node,
    saved_text: str,
    only: Iterable[str] = (),
    may_differ: Collection[str] = (),
) -> None:
    """Raises ConfigError if config.yaml is not the config in a checkpoint, `saved_text`.

    Only values that decide a result are compared, not the devices that a run trains on; with
    `only`, only these nodes. may_differ: paths that are not compared.
    """
    saved = _result_values(parse_config(saved_text, "its checkpoint's config"), set(only))
    now = _result_values(config, set(only))
    changes = [
        f"{path} was {_format(saved, path)} and is {_format(now, path)}"
        for path in differing([saved, now])
        if path not in may_differ
    ]
    if not changes:
        return
    more = f", and {len(changes) - MAX_CHANGES} more" if len(changes) > MAX_CHANGES else ""
    raise config_error(
        Path(run) / "config.yaml",
        f"must be as it was when the run was trained; {'; '.join(changes[:MAX_CHANGES])}{more}",
        fix="Undo the change, or start a new run.",
    )


def _result_values(config: Node, only: set[str]) -> dict[str, Any]:
    """Returns {path: value} of the values that decide a run's result, without the devices; with
    `only`, only those of these nodes.
    """
    nodes = hashed_config(config)
    if "checkpoints" in config:  # the checkpoints that are kept so far depend on all its options
        nodes["checkpoints"] = config["checkpoints"]
    nodes = {key: node for key, node in nodes.items() if not only or key in only}
    ignored = {f"trainer.{option}" for option in DEVICE_OPTIONS}
    return {path: value for path, value in flat(nodes) if path not in ignored}


def _format(values: Node, path: str) -> str:
    return format_value(values[path]) if path in values else "nothing"


def _sha256(file: str | Path) -> str:
    """Returns the sha256 of a file's content, in hex digits."""
    return hashlib.sha256(readable(user_path(file)).read_bytes()).hexdigest()


def component_hashes(components: Iterable[str]) -> dict[str, str]:
    """Returns {file name: sha256} of the user's own components."""
    return {Path(file).name: _sha256(file) for file in components}


def saved_components(run: str | Path) -> dict[str, str]:
    """Returns {file name: sha256} of the own components with which a run began. Raises ConfigError
    for a damaged file.
    """
    path, fix = Path(run) / COMPONENTS, f"Bring the run's own {COMPONENTS} back."
    try:
        hashes = read_object(path, {}, fix=fix)
    except FileNotFoundError:
        return {}
    if not all(_is_file_name(name) and _is_sha256(value) for name, value in hashes.items()):
        rule = "must map the names of files to their sha256"
        raise config_error(path, rule, got="something else", fix=fix)
    return hashes


def check_components(
    run: str | Path, files: Iterable[str], override: str = "--components FILE"
) -> None:
    """Raises ConfigError if own components with which a run began are missing in `files` or have
    changed.

    override: how the user names a file, for the message. The saved name is shown, but never as a
    path to import: the run may be untrusted.
    """
    saved, paths = saved_components(run), {Path(file).name: file for file in files}
    if missing := {name: digest for name, digest in saved.items() if name not in paths}:
        names = ", ".join(f"'{name}' (sha256 {digest[:12]})" for name, digest in missing.items())
        raise config_error(
            run,
            "was begun with components of its own",
            got=f"no file called {names}",
            fix=f"Give the file that you trust under that name: {override}.",
        )
    for name, digest in saved.items():
        try:
            now = _sha256(paths[name])
        except OSError as error:
            rule = f"cannot read {paths[name]}: {error.strerror}"
            raise config_error("components", rule) from None
        if now != digest:
            raise config_error(
                run,
                f"{name} must be as it was when the run began (sha256 {digest[:12]})",
                got=now[:12],
                fix="Bring that version back, or start a new run.",
            )


def _is_file_name(name: Any) -> bool:
    is_text = isinstance(name, str) and name.isprintable()
    return is_text and name not in ("", "..") and Path(name).name == name


def _is_sha256(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) is not None
