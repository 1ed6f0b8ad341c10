"""Loads a tokenizer that a run saved. A file that is damaged, edited or from another program raises
ConfigError.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from xformer_kit.data.plain import Plain
from xformer_kit.data.tokenizer.base import TOKENIZERS, Tokenizer
from xformer_kit.files.saved_files import readable
from xformer_kit.registry import ConfigError, config_error, did_you_mean
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
# errors of restoring a tokenizer from wrong values
RESTORE_ERRORS = (TypeError, KeyError, ValueError, AttributeError, IndexError)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Loads the tokenizer that `save` wrote. path: the file, or the directory of `tokenizer.json`.

    Raises ConfigError if it is missing or cannot be read, if a key is missing or unknown, and if
    the component of a user's tokenizer was not imported before.
    """
    file = Path(path, "tokenizer.json") if Path(path).is_dir() else Path(path)
    try:
        text = readable(file).read_text(encoding="utf-8")
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise _file_error(f"{file}' ({error})", "Name a run's directory") from None
    return _load_library(file, text, data) if "model" in data else _load_own(file, data)


def _load_library(file: Path, text: str, data: Plain) -> Tokenizer:
    """Loads a file of the library `tokenizers`."""
    try:
        recognised = (kind for kind in TOKENIZERS.values() if kind.recognises(data))
        return next(recognised, TOKENIZERS["pretrained"]).read(text, file)
    except (ConfigError, *RESTORE_ERRORS) as error:
        _check_keys(file, data, LIBRARY_KEYS)
        if isinstance(error, ConfigError):
            raise
        raise _other_values(file, error) from None


def _load_own(file: Path, data: Plain) -> Tokenizer:
    """Loads a file with the name of a component and its state."""
    _check_keys(file, data, KEYS)
    if missing := [key for key in KEYS if key not in data]:
        raise _missing_key(file, missing[0])
    name, state = str(data["tokenizer"]), data["state"]
    if name not in TOKENIZERS:
        raise config_error(
            "tokenizer",
            f"no tokenizer is called '{name}' here, but '{file}' needs it",
            fix=did_you_mean(name, TOKENIZERS)
            + "If it is your own, name its file in components=[...].",
        )
    component = TOKENIZERS[name]
    if not isinstance(state, dict) or component.save is not Tokenizer.save:
        raise _file_error(f"{file}', which is none of tokenizer '{name}'")
    try:
        tokenizer = component.restore(state)
        _ = tokenizer._pieces  # computes the bytes of all tokens, which fails for wrong values
        known_state = (
            tokenizer.state() if component.__module__.startswith("xformer_kit.") else state
        )
    except RESTORE_ERRORS as error:
        raise _not_restored(file, name, state, error) from None
    _check_keys(file, state, known_state, "state.")
    return tokenizer


def _check_keys(file: Path, keys: Plain, known: Iterable[str], prefix: str = "") -> None:
    """Raises ConfigError for keys that no run writes. prefix: of the keys in the message."""
    if unknown := [key for key in keys if key not in known]:
        raise _unknown_keys(file, unknown, known, prefix)


def _not_restored(file: Path, name: str, state: Plain, error: Exception) -> ConfigError:
    """Returns the error of a state from which a tokenizer could not be restored."""
    text = str(error)
    if isinstance(error, TypeError) and (
        unknown := [key for key in state if f"unexpected keyword argument '{key}'" in text]
    ):
        return _unknown_keys(file, unknown, (), "state.")
    if isinstance(error, KeyError) and error.args and error.args[0] not in state:
        keys = ", ".join(f"state.{key}" for key in state) or "nothing"
        return _missing_key(file, f"state.{error.args[0]}", f". It has: {keys}")
    return _other_values(file, error, f" of tokenizer '{name}'")


def _unknown_keys(
    file: Path, unknown: Iterable[str], known: Iterable[str], prefix: str
) -> ConfigError:
    """Returns the error of unknown keys; it lists the known keys, if there are any."""
    written = f". A run writes: {', '.join(prefix + key for key in known)}" if known else ""
    keys = ", ".join(f"'{prefix}{key}'" for key in unknown)
    fix = "Remove the key, or bring a copy of the file back"
    return _file_error(f"{file}' with the unknown key {keys}{written}", fix)


def _missing_key(file: Path, key: str, note: str = "") -> ConfigError:
    """Returns the error of a missing key."""
    return _file_error(f"{file}' without the key '{key}'{note}")


def _other_values(file: Path, error: Exception, owner: str = "") -> ConfigError:
    """Returns the error of values that no run writes."""
    return _file_error(f"{file}'{owner} with other values ({one_line(error)})")


def _file_error(got: str, fix: str = "Bring a copy of the file back") -> ConfigError:
    """Returns the error of a file; `got` follows an opening quotation mark."""
    return config_error("tokenizer", "must be a file that a run saved", f"'{got}", f"{fix}.")
