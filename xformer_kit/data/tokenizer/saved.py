"""Reading a tokenizer that a run saved. A file that is damaged, edited or of another program raises
ConfigError.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from xformer_kit.data.plain import Plain
from xformer_kit.data.refused import refused
from xformer_kit.data.tokenizer.base import TOKENIZERS, Tokenizer
from xformer_kit.registry import ConfigError, nearest
from xformer_kit.registry.messages import one_line

KEYS = ("tokenizer", "state")
# of a tokenizer.json of the library `tokenizers`
LIBRARY_KEYS = (
    "version",
    "truncation",
    "padding",
    "added_tokens",
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "model",
)
# errors for other values than those of a run
WRONG = (TypeError, KeyError, ValueError, AttributeError, IndexError)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer that `save` wrote; `path` is the file, or the directory that holds
    `tokenizer.json`.

    Raises ConfigError if it is missing or cannot be read, has keys that no run writes, or lacks
    one, and if a user's own tokenizer was not imported first.
    """
    file = Path(path, "tokenizer.json") if Path(path).is_dir() else Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(f"{file}' ({error})", "Name a run's directory") from None
    return _library(file, text, data) if "model" in data else _own(file, data)


def _library(file: Path, text: str, data: Plain) -> Tokenizer:
    """From a file of the library `tokenizers`."""
    try:
        component = next(
            (p for p in TOKENIZERS.values() if p.recognises(data)), TOKENIZERS["pretrained"]
        )
        return component.read(text, file)
    except (ConfigError, *WRONG) as error:
        if unknown := [key for key in data if key not in LIBRARY_KEYS]:
            raise _unknown(file, unknown, LIBRARY_KEYS) from None
        if isinstance(error, ConfigError):
            raise
        raise _other(file, error) from None


def _own(file: Path, data: Plain) -> Tokenizer:
    """From a file with the name of a component and its state."""
    if unknown := [key for key in data if key not in KEYS]:
        raise _unknown(file, unknown, KEYS)
    if missing := [key for key in KEYS if key not in data]:
        raise _missing(file, missing[0])
    name, state = str(data["tokenizer"]), data["state"]
    if name not in TOKENIZERS:
        raise refused(
            "tokenizer",
            f"no tokenizer is called '{name}' here, but '{file}' needs it",
            fix=f"{nearest(name, TOKENIZERS)}If it is your own, name its file in components=[...].",
        )
    component = TOKENIZERS[name]
    if not isinstance(state, dict) or component.save is not Tokenizer.save:
        raise _refused(f"{file}', which is none of tokenizer '{name}'")
    try:
        made = component.restore(state)
        _ = made._pieces  # the bytes of all tokens: they can be made from what a run saved
        known = made.state() if component.__module__.startswith("xformer_kit.") else state
    except WRONG as error:
        raise _not_restored(file, name, state, error) from None
    if unknown := [key for key in state if key not in known]:
        raise _unknown(file, [f"state.{key}" for key in unknown], [f"state.{key}" for key in known])
    return made


def _not_restored(file: Path, name: str, state: Plain, error: Exception) -> ConfigError:
    """The fault of a state that a tokenizer could not be restored from."""
    text = str(error)
    if isinstance(error, TypeError) and (
        unknown := [key for key in state if f"unexpected keyword argument '{key}'" in text]
    ):
        return _unknown(file, [f"state.{key}" for key in unknown])
    if isinstance(error, KeyError) and error.args and error.args[0] not in state:
        has = ", ".join(f"state.{key}" for key in state) or "nothing"
        return _missing(file, f"state.{error.args[0]}", f". It has: {has}")
    return _other(file, error, f" of tokenizer '{name}'")


def _unknown(file: Path, unknown: Iterable[str], known: Iterable[str] = ()) -> ConfigError:
    has = f". A run writes: {', '.join(known)}" if known else ""
    keys = ", ".join(f"'{key}'" for key in unknown)
    way = "Remove the key, or bring a copy of the file back"
    return _refused(f"{file}' with the unknown key {keys}{has}", way)


def _missing(file: Path, key: str, has: str = "") -> ConfigError:
    return _refused(f"{file}' without the key '{key}'{has}")


def _other(file: Path, error: Exception, what: str = "") -> ConfigError:
    return _refused(f"{file}'{what} with other values ({one_line(error)})")


def _refused(got: str, way: str = "Bring a copy of the file back") -> ConfigError:
    return refused("tokenizer", "must be a file that a run saved", f"'{got}", f"{way}.")
