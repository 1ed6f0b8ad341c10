"""A model of ours as a directory that the library transformers loads."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from xformer_kit.data.tokenizer.exported import write_tokenizer
from xformer_kit.data.tokenizer.library import LibraryTokenizer
from xformer_kit.data.tokenizer.published_ids import (
    GENERATION,
    exported_special_ids,
    kept_special_ids,
)
from xformer_kit.eject import eject, merged
from xformer_kit.eject.check import check, formatted
from xformer_kit.eject.transformers_code import FILE, config_keys, modelling_code
from xformer_kit.files.saved_files import read_object
from xformer_kit.hub.architecture import architecture, values_of
from xformer_kit.hub.family import Family, model_types, of_type
from xformer_kit.hub.files import CONFIG, WEIGHTS
from xformer_kit.hub.transfer import table_of, written
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.plan import model_plan
from xformer_kit.pretrained import GENERATION_CONFIG, composition_of, copy_kept, write_json
from xformer_kit.registry import ConfigError, config_error, format_value

Differences = list[tuple[str, Any, Any]]  # path, value here, value in a family
MAX_LISTED = 4  # differences in a message
LAYER = re.compile(r"\b\d+\.")  # in a path


def published_form(
    config: Mapping[str, Any],
    vocab_size: int,
    families: Iterable[str] | None = None,
    source_vocab_size: int | None = None,
) -> tuple[Family, dict[str, Any]]:
    """Returns the family of a composition and its config.json, which is read back and compared.

    families: model_types that are tried, the first that fits is taken; None: all, those of the
    config's name first. source_vocab_size: of the source's tokens, if it differs. Raises
    ConfigError, with what the nearest family has otherwise, if none
    fits.
    """
    model = meta_model(config, vocab_size, source_vocab_size)
    values, wanted = values_of(config, model), architecture(config, model)
    differences = dict[str, Differences]()
    for model_type in _tried(config) if families is None else families:
        family = of_type(model_type)
        try:
            keys = written_keys(family, model_type, values)
            back = composition_of(keys)
            got = architecture(back.config, meta_model(*back[2:]))
        except (ConfigError, KeyError, TypeError, AttributeError, ValueError):
            continue  # it has no value of theirs
        found = [
            (path, wanted.get(path), got.get(path))
            for path in dict.fromkeys([*wanted, *got])
            if wanted.get(path) != got.get(path)
        ]
        if not found:
            return family, keys
        differences[model_type] = found
    raise _unpublished(differences)


def save_published(
    folder: str | Path,
    model: Model,
    config: Mapping[str, Any],
    families: Iterable[str] | None = None,
    run: Path | None = None,
) -> dict[str, Any]:
    """Writes config.json, generation_config.json and model.safetensors, which transformers loads;
    and the tokenizer of the model, if it is one of the library tokenizers. Returns the config.json.

    config: of the model. families: as in `published_form`, which raises ConfigError. run: the
    directory of the model's run, for what it keeps of a published model.
    """
    sizes = model.vocab_size, families, model.source_vocab_size
    family, keys = published_form(config, *sizes)
    table = table_of(family, model, model_plan(config))
    tensors = {name: tensor.detach().contiguous() for name, tensor in written(table, model)}
    dtype = model.embed.weight.dtype
    tensors |= {name: tensor.to(dtype) for name, tensor in family.computed(keys).items()}
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    save_file(tensors, place / WEIGHTS, {"format": "pt"})
    _write_around(place, model, keys, run)
    return keys


def save_with_code(
    folder: str | Path,
    model: Model,
    config: Mapping[str, Any],
    title: str,
    command: str,
    run: Path | None = None,
) -> dict[str, Any]:
    """Writes the same files for a composition that no family has, with the ejected file of the
    model as modelling code: transformers loads it with `trust_remote_code=True`. Returns the
    config.json.

    title, command: for the docstring of the file. run: as in `save_published`. Raises ConfigError
    if the file has no template for a component, or computes other logits than the model.
    """
    sizes, config = (model.vocab_size, model.source_vocab_size), merged(config)
    source = formatted(eject(config, *sizes, title, command))
    check(source, model, config)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    code = formatted(modelling_code(source, model))
    (place / f"{FILE}.py").write_text(code, encoding="utf-8")
    tensors = {f"model.{name}": t.contiguous() for name, t in model.state_dict().items()}
    save_file(tensors, place / WEIGHTS, {"format": "pt"})
    keys = config_keys(model)
    _write_around(place, model, keys, run)
    return keys


def _write_around(place: Path, model: Model, keys: dict[str, Any], run: Path | None) -> None:
    """Writes config.json, generation_config.json and the tokenizer, and what a run keeps of a
    published model.
    """
    keys["dtype"] = str(model.embed.weight.dtype).removeprefix("torch.")
    kept = kept_special_ids(run) if run else {}
    ids = exported_special_ids(kept, keys["model_type"])
    generation: dict[str, Any] = {"do_sample": False}
    tokenizer: Any = getattr(model, "tokenizer", None)
    if isinstance(tokenizer, LibraryTokenizer):
        of_task = write_tokenizer(place, tokenizer, keys, model.two_stacks)
        ids |= of_task
        generation |= {"pad_token_id": of_task["eos_token_id"]} if of_task else {}
    keys |= {name: value for name, value in ids.items() if name not in keys}
    write_json(place / CONFIG, keys)
    generation |= {name: ids[name] for name in GENERATION if ids.get(name) is not None}
    write_json(place / GENERATION_CONFIG, generation)
    if run:
        copy_kept(run, place)
    if "auto_map" in keys:  # that of a published model may have a cache, which the code has not
        written = read_object(place / GENERATION_CONFIG, {})
        write_json(place / GENERATION_CONFIG, written | {"use_cache": False})


def _unpublished(differences: Mapping[str, Differences]) -> ConfigError:
    """Returns the error of a composition that no family has."""
    rule = "is the composition of no published family that is known here"
    if not differences:
        return config_error("config", rule)
    kinds = {name: _one_of_each(found) for name, found in differences.items()}
    nearest = min(kinds, key=lambda name: len(kinds[name]))
    found = kinds[nearest]
    listed = "; ".join(
        f"{path} is {format_value(here)} here and {format_value(there)} there"
        for path, here, there in found[:MAX_LISTED]
    )
    more = f"; and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    return config_error("config", f"{rule}. The nearest is {nearest}: {listed}{more}")


def _one_of_each(found: Differences) -> Differences:
    """The differences without those that another layer has too."""
    first: dict[str, tuple[str, Any, Any]] = {}
    for path, here, there in found:
        first.setdefault(f"{LAYER.sub('', path)} {here} {there}", (path, here, there))
    return [*first.values()]


def written_keys(family: Family, model_type: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config.json of a composition in a family."""
    keys: dict[str, Any] = {
        "model_type": model_type,
        "architectures": [family.architectures[0]],
    }
    for entry in family.keys:
        keys |= entry.write(values)
    return keys


def _tried(config: Mapping[str, Any]) -> list[str]:
    """The model_types, those of the config's name first."""
    known = model_types()
    return sorted(known, key=lambda name: not str(config.get("name", "")).startswith(name))


def meta_model(config: Mapping[str, Any], vocab_size: int, source: int | None) -> Model:
    with torch.device("meta"):
        return build_model(config, vocab_size, source)
