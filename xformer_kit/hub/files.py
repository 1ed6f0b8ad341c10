"""The files of a published model: config.json, and weights in safetensors, in one file or several.

A directory may be untrusted: files are read as plain data, no pickle is opened, and no code of a
repository runs.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from xformer_kit.files.saved_files import read_object, readable
from xformer_kit.registry import config_error
from xformer_kit.registry.messages import one_line

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt")
# Bytes that are mapped into memory before a file is opened again, which gives them back.
MAPPED = 2**28


def read_config_json(folder: Path) -> dict[str, Any]:
    """Returns the content of a model's config.json. Raises ConfigError."""
    path = folder / CONFIG
    if folder.is_file():
        rule = f"must be a {CONFIG}, or a directory with one"
        raise config_error(folder, rule, fix="Name one that save_pretrained wrote.")
    try:
        return read_object(path, {}, fix="Bring the whole file.")
    except FileNotFoundError:
        rule = f"must be a directory with a {CONFIG}"
        raise config_error(folder, rule, fix="Save a model there with save_pretrained.") from None


class WeightFiles:
    """The tensors of a directory by their names, none of which is read before it is needed."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self.file_of: dict[str, Path] = {}
        for path in weight_files(folder):
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118 (it is no mapping)
                    part = file.get_slice(name)
                    self.shapes[name] = tuple(part.get_shape())
                    self.dtypes[name] = part.get_dtype()
                    self.file_of[name] = path

    def read(self, groups: Iterable[list[str]]) -> Iterator[list[Tensor]]:
        """Yields the tensors of each group of names, which share memory with their files: a group
        has to be copied before the next one.
        """
        opened: dict[Path, Any] = {}
        mapped = 0
        for names in groups:
            if mapped > MAPPED:
                opened.clear()
                mapped = 0
            files = {self.file_of[name] for name in names}
            opened |= {path: _opened(path) for path in files - opened.keys()}
            tensors = [opened[self.file_of[name]].get_tensor(name) for name in names]
            mapped += sum(tensor.nbytes for tensor in tensors)
            yield tensors
            del tensors


def weight_files(folder: Path) -> list[Path]:
    """Returns the files of a model's weights. Raises ConfigError if there are none that can be
    read.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    try:
        index = read_object(folder / INDEX, {}, fix="Bring the whole file.")
    except FileNotFoundError:
        raise _no_weights(folder) from None
    names = index.get("weight_map")
    if not isinstance(names, Mapping) or not all(
        isinstance(name, str) and Path(name).name == name for name in names.values()
    ):
        rule = "must map the names of tensors to files next to it, under weight_map"
        raise config_error(folder / INDEX, rule, fix="Bring the whole file.")
    files = [folder / name for name in dict.fromkeys(names.values())]
    if missing := [file.name for file in files if not file.is_file()]:
        rule = f"names {', '.join(missing)}, which {'are' if len(missing) > 1 else 'is'} not there"
        raise config_error(folder / INDEX, rule, fix="Bring all files of the model.")
    return files


def _no_weights(folder: Path) -> Exception:
    """Returns the error of a directory without safetensors."""
    found = next((name for name in PICKLES if (folder / name).is_file()), None)
    fix = "Save it there with save_pretrained of transformers, which writes safetensors."
    if found:
        rule = f"has its weights in {found}, a pickle, which can run code when it is read"
        return config_error(folder, rule, fix=fix)
    return config_error(folder, f"has no {WEIGHTS} and no {INDEX}", fix=fix)


def _opened(path: Path) -> Any:
    """Returns an open file. Raises ConfigError for one that is no safetensors, or not complete."""
    try:
        return safe_open(readable(path), "pt")
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        rule = f"is no complete file of safetensors ({one_line(error)})"
        raise config_error(path, rule, fix="Bring the whole file.") from None
