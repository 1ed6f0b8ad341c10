"""The ids of special tokens in the config.json of a published model, which a run keeps."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xformer_kit.data import cache
from xformer_kit.files.saved_files import read_object

FILE = "special_token_ids.json"  # in a run's directory
GENERATION = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
)
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
