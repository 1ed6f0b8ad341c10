"""Models of the library transformers: their directories as models of ours."""

import functools
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save_file

from xformer_kit.checkpoint import MODEL, PUBLISHED
from xformer_kit.config import compose, config_yaml
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.saved.run_directories import CONFIG as RUN_CONFIG
from xformer_kit.data import cache
from xformer_kit.data.tokenizer import Pretrained
from xformer_kit.data.tokenizer.published_ids import keep_special_ids
from xformer_kit.files.saved_files import read_object
from xformer_kit.hub.download import published_directory
from xformer_kit.hub.family import Family
from xformer_kit.hub.files import CONFIG
from xformer_kit.hub.identify import identify, preset_words
from xformer_kit.hub.keys import Choice, Key
from xformer_kit.hub.load import load_model
from xformer_kit.hub.transfer import config_of
from xformer_kit.model.model import Model
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.text.command_lines import override_text
from xformer_kit.text.user_path import user_path

TOKENIZER, SENTENCEPIECE = "tokenizer.json", "tokenizer.model"
GENERATION_CONFIG = "generation_config.json"
# Files of a published model that a run keeps, and an export of it writes again.
KEPT = (
    GENERATION_CONFIG,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
SEQ_LEN = SETTINGS.options("data")["seq_len"].default


class Composition(NamedTuple):
    """The composition of a published model."""

    family: Family
    words: list[str]  # overrides that compose it
    config: dict[str, Any]
    vocab_size: int
    source_vocab_size: int | None


def composition_of(config_json: dict[str, Any], more: Iterable[str] = ()) -> Composition:
    """Returns the composition of a config.json. more: further overrides. Raises ConfigError with
    all its faults.
    """
    found = identify(config_json)
    family, _, vocab_size, source_size = found
    preset = compose([f"preset={family.preset}"], data=False)["model"]
    words = [*preset_words(found, preset, SEQ_LEN), f"model.vocab_size={vocab_size}"]
    try:
        config = compose([*words, *more], data=False)
    except ConfigError as error:
        raise _with_keys(error, family) from None
    return Composition(family, words, config, vocab_size, source_size)


def _with_keys(error: ConfigError, family: Family) -> ConfigError:
    """Returns the error of a composition with the keys of config.json in its paths."""
    keys = {entry.ours: entry.theirs for entry in family.keys if isinstance(entry, Key | Choice)}
    named = (
        replace(fault, path=f"{keys[fault.path]} ({fault.path})") if fault.path in keys else fault
        for fault in error.faults
    )
    return ConfigError(fault.under(CONFIG) for fault in named)


def load_published(folder: str | Path) -> Model:
    """Returns the model of a directory of transformers, in evaluation mode, in the dtype of its
    files.
    """
    place = Path(folder)
    composition = composition_of(config_of(place))
    return load_model(place, *composition[2:])


def run_directory(name: str | Path) -> Path:
    """Returns the directory of a run; for the directory of a published model, or its name on the
    hub, that of a run in the user's cache whose weights are read from there.
    """
    folder = published_directory(name)
    if folder is None:
        return user_path(name)
    return _run_of(folder.resolve(), (folder / CONFIG).read_text("utf-8", "replace"))


@functools.cache  # a command opens its run twice
def _run_of(folder: Path, config_json: str) -> Path:
    key = hashlib.sha256(f"{folder} {config_json}".encode()).hexdigest()[:16]
    run = cache.directory(None) / "published" / key
    write_run(folder, run)
    write_json(run / "checkpoints" / PUBLISHED, {"folder": str(folder)})
    return run


def import_run(name: str | Path, run: Path) -> Composition:
    """Writes a run with the weights of a published model, in their precision. name: its directory,
    or its name on the hub.
    """
    source = published_directory(name) or user_path(name)
    model = load_published(source)
    composition = write_run(source, run)
    save_file(model.state_dict(), run / "checkpoints" / MODEL)
    return composition


def write_run(source: Path, run: Path) -> Composition:
    """Writes the config and the tokenizer of a published model into the directory of a run."""
    config_json = config_of(source)
    composition = composition_of(config_json, tokenizer_words(source))
    tokenizer = Pretrained(path=str(source)) if (source / TOKENIZER).is_file() else None
    if tokenizer is not None and tokenizer.vocab_size > composition.vocab_size:
        rule = "has more tokens than the model"
        got = f"{tokenizer.vocab_size:,} and {composition.vocab_size:,}"
        raise config_error(source / TOKENIZER, rule, got, "Bring the tokenizer of this model.")
    if composition.source_vocab_size not in (None, composition.vocab_size):
        rule = "has two vocabularies, and the files of a run one tokenizer for each"
        raise config_error(source, rule, fix="Load it in Python: load_published(folder).")
    for name in KEPT:
        if Path(name).suffix == ".json" and (source / name).is_file():
            read_object(source / name, {}, fix="Bring the whole file.")
    (run / "checkpoints").mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        tokenizer.save(run / TOKENIZER)
    copy_kept(source, run)
    keep_special_ids(config_json, run)
    cache.write(run / RUN_CONFIG, config_yaml(composition.config))
    return composition


def copy_kept(source: Path, target: Path, names: Iterable[str] = KEPT) -> None:
    """Copies the files that a directory has of some names."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def tokenizer_words(source: Path) -> list[str]:
    """Returns the overrides of a published model's tokenizer. Raises ConfigError for one of
    SentencePiece, of which the library tokenizers reads no file.
    """
    if (source / TOKENIZER).is_file():
        return ["tokenizer=pretrained", f"tokenizer.path={override_text(str(source.resolve()))}"]
    if (source / SENTENCEPIECE).is_file():
        raise config_error(
            source,
            f"has its tokenizer in {SENTENCEPIECE}, of SentencePiece, and no {TOKENIZER}",
            fix="Write one with AutoTokenizer.from_pretrained(...).save_pretrained(...) of"
            " transformers.",
        )
    return []


def write_json(path: Path, data: Any) -> None:
    cache.write(path, json.dumps(data, indent=2) + "\n")


def published_config(name: str) -> Composition:
    """Returns the composition of a config.json, of the directory that holds it, or of a name on the
    hub.
    """
    path = user_path(name)
    folder = path.parent if path.name == CONFIG else published_directory(name)
    return composition_of(config_of(folder or path))


def differing_words(composition: Composition) -> list[str]:
    """Returns the overrides of a composition that change something of its preset."""
    preset, *others = composition.words
    base = dict(flat_nodes(compose([preset], data=False)))
    changes = (word.partition("=") for word in others)
    return [preset, *("".join(w) for w in changes if override_text(base.get(w[0], ...)) != w[2])]


def flat_nodes(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (path, value) of all values in nested mappings, and of the mappings themselves."""
    for key, value in node.items():
        yield f"{path}{key}", value
        if isinstance(value, Mapping):
            yield from flat_nodes(value, f"{path}{key}.")
