"""Loads a tokenizer that a run saved. A file that is damaged, edited or from another program raises
ConfigError.
"""

import json
import os
from pathlib import Path

from xformer_kit.data.plain import Plain
from xformer_kit.data.tokenizer.base import TOKENIZERS, Tokenizer
from xformer_kit.files.saved_files import readable
from xformer_kit.registry import ConfigError, config_error, did_you_mean
from xformer_kit.registry.messages import one_line

KEYS = ("tokenizer", "state")
# errors of restoring a tokenizer from wrong values
RESTORE_ERRORS = (TypeError, KeyError, ValueError, AttributeError, IndexError)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Loads the tokenizer that `save` wrote. path: the file, or the directory of `tokenizer.json`.

    Raises ConfigError if it is missing or cannot be read, if a key is missing, and if the component
    of a user's tokenizer was not imported before.
    """
    file = Path(path, "tokenizer.json") if Path(path).is_dir() else Path(path)
    try:
        text = readable(file).read_text(encoding="utf-8")
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise _not_saved(file, error, "Name a run's directory.") from None
    try:
        if "model" not in data:
            return _load_own(file, data)
        recognised = (kind for kind in TOKENIZERS.values() if kind.recognises(data))
        return next(recognised, TOKENIZERS["pretrained"]).read(text, file)
    except ConfigError:
        raise
    except RESTORE_ERRORS as error:
        raise _not_saved(file, error) from None


def _load_own(file: Path, data: Plain) -> Tokenizer:
    """Loads a file with the name of a component and its state. Raises one of RESTORE_ERRORS for
    values that no run writes.
    """
    if {*data} != {*KEYS}:
        raise ValueError(f"it has the keys {', '.join(data) or 'none'}")
    name, state = str(data["tokenizer"]), data["state"]
    if name not in TOKENIZERS:
        fix = "If it is your own, name its file in components=[...]."
        raise config_error(
            "tokenizer",
            f"no tokenizer is called '{name}' here, but '{file}' needs it",
            fix=did_you_mean(name, TOKENIZERS) + fix,
        )
    component = TOKENIZERS[name]
    if not isinstance(state, dict) or component.save is not Tokenizer.save:
        raise ValueError(f"it is none of tokenizer '{name}'")
    tokenizer = component.restore(state)
    _ = tokenizer._pieces  # computes the bytes of all tokens, which fails for wrong values
    return tokenizer


def _not_saved(
    file: Path, error: Exception, fix: str = "Bring a copy of the file back."
) -> ConfigError:
    """Returns the error of a file that no run saved, or that was edited."""
    reason = f"without {error}" if isinstance(error, KeyError) else f"({one_line(error)})"
    return config_error("tokenizer", "must be a file that a run saved", f"'{file}' {reason}", fix)
