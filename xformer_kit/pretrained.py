"""Models of the library transformers: their directories as models of ours."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

from xformer_kit.config import compose
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.hub.architecture import architecture, values_of
from xformer_kit.hub.family import Family, model_types, of_type
from xformer_kit.hub.files import CONFIG, WEIGHTS, WeightFiles, read_config_json
from xformer_kit.hub.identify import identify
from xformer_kit.hub.transfer import has_own_head, load_weights, table_of, written
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.plan import model_plan
from xformer_kit.registry import ConfigError
from xformer_kit.text.command_lines import override_text

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
SEQ_LEN = SETTINGS.options("data")["seq_len"].default
CODES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


class Composition(NamedTuple):
    """The composition of a published model."""

    family: Family
    words: list[str]  # overrides that compose it
    config: dict[str, Any]
    vocab_size: int
    source_vocab_size: int | None


def composition_of(config_json: dict[str, Any]) -> Composition:
    """Returns the composition of a config.json. Raises ConfigError with all its faults."""
    family, overrides, *sizes = identify(config_json)
    choices = [path for path in overrides if "." not in path]
    paths = [*choices, *(path for path in overrides if "." in path)]
    words = [f"preset={family.preset}", *(f"{p}={override_text(overrides[p])}" for p in paths)]
    if (longest := overrides.get("model.max_len")) is not None and longest < SEQ_LEN:
        words.append(f"data.seq_len={longest}")
    return Composition(family, words, compose(words, data=False), *sizes)


def load_published(folder: str | Path) -> Model:
    """Returns the model of a directory of transformers, in evaluation mode, in the dtype of its
    files.
    """
    place = Path(folder)
    config_json = read_config_json(place)
    composition = composition_of(config_json)
    files = WeightFiles(place)
    if has_own_head(files, composition.family):
        composition = composition_of(config_json | {"tie_word_embeddings": False})
    model = empty_model(composition, _dtype(files))
    load_weights(files, composition.family, model, model_plan(composition.config))
    return model.eval()


def empty_model(composition: Composition, dtype: torch.dtype) -> Model:
    """Returns the model of a composition, with weights whose values are those that the memory had:
    no page of it is used before something is written.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with WithoutDraws():
            sizes = composition.vocab_size, composition.source_vocab_size
            return build_model(composition.config, *sizes, initial_weights=False)
    finally:
        torch.set_default_dtype(before)


class WithoutDraws(TorchFunctionMode):
    """Leaves tensors as they are where modules of torch.nn draw their first values."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.uniform_, torch.Tensor.normal_):
            return args[0]
        return function(*args, **(kwargs or {}))


def _dtype(files: WeightFiles) -> torch.dtype:
    """The dtype that most tensors of a directory have."""
    codes = [code for code in files.dtypes.values() if code in CODES]
    return DTYPES[CODES[max(set(codes), key=codes.count)]] if codes else torch.float32


class UnpublishedError(Exception):
    """Raised for a composition that no family of published models has; differences: by family, what
    its nearest composition would have otherwise, (path, here, there).
    """

    def __init__(self, differences: dict[str, list[tuple[str, Any, Any]]]):
        super().__init__("the composition is that of no published family")
        self.differences = differences


def published_form(
    config: Mapping[str, Any],
    vocab_size: int,
    families: Iterable[str] | None = None,
    source_vocab_size: int | None = None,
) -> tuple[Family, dict[str, Any]]:
    """Returns the family of a composition and its config.json, which is read back and compared.

    families: model_types that are tried, the first that fits is taken; None: all, those of the
    config's name first. source_vocab_size: of the source's tokens, if it differs. Raises
    UnpublishedError if none fits.
    """
    model = _meta_model(config, vocab_size, source_vocab_size)
    values, wanted = values_of(config, model), architecture(config, model)
    differences = {}
    for model_type in _tried(config) if families is None else families:
        family = of_type(model_type)
        try:
            keys = written_keys(family, model_type, values)
            back = composition_of(keys)
            read = _meta_model(back.config, back.vocab_size, back.source_vocab_size)
            got = architecture(back.config, read)
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
    raise UnpublishedError(differences)


def save_published(
    folder: str | Path,
    model: Model,
    config: Mapping[str, Any],
    families: Iterable[str] | None = None,
) -> Family:
    """Writes config.json and model.safetensors, which transformers loads. Returns the family.

    config: of the model. families: as in `published_form`, which raises UnpublishedError.
    """
    sizes = model.vocab_size, families, model.source_vocab_size
    family, keys = published_form(config, *sizes)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    table = table_of(family, model, model_plan(config))
    tensors = {name: tensor.detach().contiguous() for name, tensor in written(table, model)}
    dtype = model.embed.weight.dtype
    tensors |= {name: tensor.to(dtype) for name, tensor in family.computed(keys).items()}
    save_file(tensors, place / WEIGHTS, {"format": "pt"})
    (place / CONFIG).write_text(json.dumps(keys, indent=2) + "\n", encoding="utf-8")
    return family


def written_keys(family: Family, model_type: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config.json of a composition in a family."""
    keys: dict[str, Any] = {"model_type": model_type, "architectures": [family.architectures[0]]}
    for entry in family.keys:
        keys |= entry.write(values)
    return keys


def _tried(config: Mapping[str, Any]) -> list[str]:
    """The model_types, those of the config's name first."""
    known = model_types()
    return sorted(known, key=lambda name: not str(config.get("name", "")).startswith(name))


def _meta_model(config: Mapping[str, Any], vocab_size: int, source: int | None) -> Model:
    with torch.device("meta"):
        return build_model(config, vocab_size, source)
