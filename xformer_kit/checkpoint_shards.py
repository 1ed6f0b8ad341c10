"""The tensors of a checkpoint that ranks share. Each rank writes its parts into a file of its own,
safetensors with the place of each part, by torch.distributed.checkpoint, which reads them for any
number of ranks. Its files have no checksums: the checkpoint has them.
"""

import json
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from xformer_kit.tensors.shards import is_shard

PREFIX = "shards_"  # of the names of their directories
CHUNK = 2**24  # bytes


class Shards(TypedDict):
    """Where the tensors of a checkpoint are: a directory next to it, and file -> crc32."""

    folder: str
    files: dict[str, int]


class ShardsError(Exception):
    """Raised for files that are not those that were written; the message is the reason."""


def separated(entries: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns (the entries of a checkpoint without the DTensors in its nested mappings, {their
    path: DTensor}).
    """
    shards: dict[str, Tensor] = {}

    def without(state: Mapping[Any, Any], path: list[Any]) -> dict[Any, Any]:
        rest = {}
        for key, value in state.items():
            if is_shard(value):
                shards[json.dumps([*path, key])] = value
            else:
                inner = isinstance(value, Mapping)
                rest[key] = without(value, [*path, key]) if inner else value
        return rest

    return without(entries, []), shards


def write_shards(shards: dict[str, Tensor], folder: Path) -> Shards:
    """Writes DTensors into a new directory; all ranks must call it. The files are on the disk when
    it returns. Raises OSError on all ranks if one cannot write.
    """
    import torch.distributed.checkpoint as dcp

    try:
        writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
        dcp.save(shards, storage_writer=writer)
    except dcp.CheckpointException as error:  # the same on all ranks, and no Exception
        first, _ = next(iter(error.failures.values()))
        raise OSError(getattr(first, "errno", None), str(first)) from first
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    own = {file.name: _flushed(file) for file in sorted(folder.iterdir())[rank::ranks]}
    found: list[Any] = [None] * ranks
    torch.distributed.all_gather_object(found, own)
    return {"folder": folder.name, "files": {k: v for part in found for k, v in part.items()}}


def _flushed(file: Path) -> int:
    """Waits until a file is on the disk; returns its crc32."""
    with open(file, "rb+") as opened:
        os.fsync(opened.fileno())
    return _crc32(file)


def _crc32(file: Path) -> int:
    found = 0
    with open(file, "rb") as opened:
        while data := opened.read(CHUNK):
            found = zlib.crc32(data, found)
    return found


def read_shards(place: Path, shards: Shards) -> Iterator[tuple[list[Any], Tensor]]:
    """Yields (path in the entries, whole tensor) of the tensors that `write_shards` wrote. place:
    the directory of the checkpoint. Raises ShardsError if a file is missing, or is another one.
    """
    import torch.distributed.checkpoint as dcp

    folder = _checked(place, shards)
    reader = dcp.HuggingFaceStorageReader(str(folder))
    metadata = reader.read_metadata().state_dict_metadata
    state = {
        key: torch.empty(entry.size, dtype=entry.properties.dtype)  # type: ignore[union-attr]
        for key, entry in metadata.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is one process
        dcp.load(state, storage_reader=reader, no_dist=True)
    for key, tensor in state.items():
        yield json.loads(key), tensor


def _checked(place: Path, shards: Shards) -> Path:
    """Returns the directory of the tensors, whose files have their checksums."""
    name = shards["folder"]
    if Path(name).name != name or not name.startswith(PREFIX):
        raise ShardsError(f"its tensors cannot be in {name!r}")
    for file, checksum in shards["files"].items():
        path = place / name / file
        if Path(file).name != file or not path.is_file():
            raise ShardsError(f"{name}/{file} is missing")
        if _crc32(path) != checksum:
            raise ShardsError(f"{name}/{file} does not have its checksum")
    return place / name
