"""The special tokens of a published model: their ids in config.json, which a run keeps, and those
that take the place of an objective's special tokens.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from xformer_kit.data import cache
from xformer_kit.data.tokenizer.base import Tokenizer
from xformer_kit.data.tokenizer.library import LibraryTokenizer
from xformer_kit.files.saved_files import read_object
from xformer_kit.objective.denoising import MASK
from xformer_kit.objective.seq2seq import END, START

FILE = "special_token_ids.json"  # in a run's directory
GENERATION = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
)
MASKS = ("[MASK]", "<mask>")  # names that published models have
KEYS = (*GENERATION, "cls_token_id", "sep_token_id", "mask_token_id", "unk_token_id")


def keep_special_ids(config_json: Mapping[str, Any], run: Path) -> None:
    """Writes the ids of special tokens of a config.json, and its model_type, into a run."""
    kept = {key: config_json[key] for key in ("model_type", *KEYS) if key in config_json}
    cache.write(run / FILE, json.dumps(kept, indent=2) + "\n")


def kept_special_ids(run: Path) -> dict[str, Any]:
    """Returns what `keep_special_ids` wrote; {} if there is no file."""
    try:
        return read_object(run / FILE, {})
    except FileNotFoundError:
        return {}


def exported_special_ids(kept: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """Returns the ids of special tokens for a config.json.

    kept: of the published model that the weights began with. An id that its config.json lacks is
    the default of its class, and is None in the config.json of another class, since the default
    of a class may be outside the vocabulary.
    """
    ids = {key: kept[key] for key in KEYS if key in kept}
    if kept.get("model_type") == model_type:
        return ids
    return dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")) | ids


def set_specials(tokenizer: Tokenizer, names: Sequence[str], run: Path | None = None) -> None:
    """Sets the special tokens of an objective. They follow the tokens of text; with `run`, a
    directory with the files of a published model about special tokens, they are those of the
    model, and a name for which it has none is left out.
    """
    if run is None or not (run / FILE).is_file() or not isinstance(tokenizer, LibraryTokenizer):
        tokenizer.specials = tuple(names)
        return
    tokenizer.specials, tokenizer.published = (), published_specials(tokenizer, run, names)
    around = tokenizer.library.encode("a", add_special_tokens=True)
    first = [*around.special_tokens_mask, 0].index(0)
    last = len(around.ids) - [*reversed(around.special_tokens_mask), 0].index(0)
    tokenizer.around = around.ids[:first], around.ids[max(first, last) :]


def published_specials(
    tokenizer: LibraryTokenizer, run: Path, names: Iterable[str]
) -> dict[str, int]:
    """Returns the ids of an objective's special tokens in a published model, without the names for
    which it has no token.
    """
    library, settings = tokenizer.library, _settings(run)
    mask = settings.get("mask_token")
    mask = mask["content"] if isinstance(mask, dict) else mask
    marked = {library.token_to_id(name): name for name in MASKS} | {None: None}
    of_model = next((name for i, name in marked.items() if i in tokenizer.special_ids), None)
    end = settings.get("eos_token_id")
    ids = {name: library.token_to_id(name) for name in names}
    ids |= {
        START: _start(settings),
        END: end[0] if isinstance(end, list) and end else end,
        MASK: library.token_to_id(mask or of_model or MASK),
    }
    return {name: ids[name] for name in names if isinstance(ids[name], int)}


def text_ends(tokenizer: Tokenizer, run: Path) -> tuple[int | None, int | None]:
    """Returns the ids of the tokens at the beginning and the end of a text, those that the files of
    a published model in a run name, None for one that they do not name: of its tokenizer
    (`bos_token`, `eos_token`), or else of its config.json.
    """
    if not (run / FILE).is_file() or not isinstance(tokenizer, LibraryTokenizer):
        return None, None
    settings = _settings(run)

    def find(name: str) -> int | None:
        token = settings.get(f"{name}_token")
        token = token["content"] if isinstance(token, dict) else token
        ids = settings.get(f"{name}_token_id")
        ids = ids[0] if isinstance(ids, list) and ids else ids
        named = tokenizer.library.token_to_id(token) if isinstance(token, str) else None
        return named if named is not None else ids if isinstance(ids, int) else None

    return find("bos"), find("eos")


def _settings(run: Path) -> dict[str, Any]:
    """Returns the keys of the files of a published model about special tokens."""
    found = kept_special_ids(run)
    for name in ("special_tokens_map.json", "tokenizer_config.json", "generation_config.json"):
        with suppress(FileNotFoundError):
            found |= {k: v for k, v in read_object(run / name, {}).items() if v is not None}
    return found


def _start(settings: Mapping[str, Any]) -> int | None:
    """Returns the first token of an answer; None if a second one is fixed too, as a language is,
    which the search for an answer does not have.
    """
    forced = settings.get("forced_bos_token_id")
    start: int | None = settings.get("decoder_start_token_id") if forced is None else None
    return start
