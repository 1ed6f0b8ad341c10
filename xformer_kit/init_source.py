"""What a run starts from, `init_from=RUN`: weights of a checkpoint, their hash, and the special
tokens of a published model.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xformer_kit.checkpoint import PUBLISHED, Checkpoint, DamagedError, read
from xformer_kit.config import read_config
from xformer_kit.config.saved.init_from_source import source_faults, source_of
from xformer_kit.config.saved.saved_run import check_saved
from xformer_kit.data.preparation.training_data import set_tokenizers
from xformer_kit.data.tokenizer import load_tokenizer
from xformer_kit.data.tokenizer.library import LibraryTokenizer
from xformer_kit.data.tokenizer.published_ids import FILE as IDS
from xformer_kit.data.tokenizer.published_ids import published_specials
from xformer_kit.files.saved_files import read_object
from xformer_kit.model.build import build_model
from xformer_kit.model.lora import adapter_paths, merged_state
from xformer_kit.objective import objective_of
from xformer_kit.pretrained import TOKENIZER, run_directory
from xformer_kit.registry import ConfigError, Node, config_error


class Source(NamedTuple):
    """A run from whose weights another starts."""

    run: Path
    file: Path  # its checkpoint
    config: dict[str, Any]
    checkpoint: Checkpoint
    weights: dict[str, Tensor]  # averaged, if it has averages, with merged adapters


def read_source(config: Node) -> Source:
    """Returns the source init_from.run of a config. Raises ConfigError."""
    run, file = _files(config)
    check_saved(run, saved := read_config(run))
    try:
        checkpoint = read(file)
    except DamagedError as error:
        fix = "Name another checkpoint of the run."
        raise config_error("init_from.run", f"{file} is damaged ({error})", fix=fix) from None
    weights = {**checkpoint.state_dict, **(checkpoint.average or {})}
    if rank := (lora := saved.get("lora") or {}).get("rank"):
        with torch.device("meta"):
            paths = adapter_paths(build_model(saved, 1))
        weights = merged_state(weights, paths, (lora.get("alpha") or rank) / rank)
    return Source(run, file, saved, checkpoint, weights)


def weights_of(config: Node) -> str:
    """Returns the sha256 of the weights of init_from.run; "" for a config without it."""
    path = (config.get("init_from") or {}).get("run")
    return _digest_of(path, _stamp(_files(config)[1])) if path else ""


def digest(weights: Mapping[str, Tensor]) -> str:
    """Returns the sha256 of tensors with their names."""
    found = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        found.update(name.encode())
        found.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def source_shapes(config: Node) -> tuple[Path, dict[str, Tensor]]:
    """Returns (run, tensors on the device meta) of init_from.run. Raises ConfigError."""
    run, file = _files(config)
    return run, dict(_shapes_of(config["init_from"]["run"], _stamp(file)))


def objective_for(config: Node, prepared: Any, resumed: Path | None = None) -> Any:
    """Returns the objective of a config with the tokenizers of its prepared data. A run that starts
    from a published model has the special tokens of this model. resumed: the run's directory, if
    it goes on from a checkpoint.
    """
    objective = objective_of(config)
    run = resumed or _published_run(config, prepared, objective.specials)
    return set_tokenizers(objective, prepared, run)


def _published_run(config: Node, prepared: Any, names: Sequence[str]) -> Path | None:
    """Returns the run of init_from.run if it is that of a published model with the tokenizer of the
    prepared data, and has a token for each special token of the task; else None.
    """
    if not (config.get("init_from") or {}).get("run"):
        return None
    run, tokenizer = _files(config)[0], prepared.tokenizer
    if not (run / IDS).is_file() or not isinstance(tokenizer, LibraryTokenizer):
        return None
    same = load_tokenizer(run / TOKENIZER).pieces() == tokenizer.pieces()
    found = published_specials(tokenizer, run, names) if same else {}
    return run if same and found.keys() >= {*names} else None


def _files(config: Node) -> tuple[Path, Path]:
    """Returns (run, checkpoint) of init_from.run. Raises ConfigError."""
    if faults := list(source_faults(config)):
        raise ConfigError(faults)
    run, file = source_of(str(run_directory(config["init_from"]["run"])))
    assert file is not None
    return run, file


def _stamp(file: Path) -> tuple[tuple[str, int, int], ...]:
    """Returns (name, size, time) of the files with the weights: another value if they changed."""
    files = [file]
    if file.name == PUBLISHED:
        folder = Path(read_object(file, {"folder": str}, needs=("folder",))["folder"])
        files += sorted(folder.glob("*.safetensors"))
    stats = ((str(path), path.stat()) for path in files)
    return tuple((name, found.st_size, found.st_mtime_ns) for name, found in stats)


# The variants of a study have one source, which is read once for each of the two.
@lru_cache(maxsize=8)
def _digest_of(path: str, stamp: tuple[tuple[str, int, int], ...]) -> str:
    return digest(read_source({"init_from": {"run": path}}).weights)


@lru_cache(maxsize=8)
def _shapes_of(path: str, stamp: tuple[tuple[str, int, int], ...]) -> dict[str, Tensor]:
    weights = read_source({"init_from": {"run": path}}).weights
    return {name: weight.to("meta") for name, weight in weights.items()}
