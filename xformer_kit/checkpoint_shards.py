"""The tensors of a checkpoint that ranks share. Each rank writes its parts into a file of its own,
safetensors with the place of each part, by torch.distributed.checkpoint, which reads them for any
number of ranks. Its files have no checksums: the checkpoint has them.
"""

import json
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor

from xformer_kit.tensors.shards import is_shard, part_like

PREFIX = "shards_"  # of the names of their directories
CHUNK = 2**24  # bytes that are read at once
PART = 2**27  # bytes of a rank that are written at once
Key = TypeVar("Key")


class Shards(TypedDict):
    """Where the tensors of a checkpoint are: a directory next to it, and the crc32 of each file
    below it.
    """

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


def write_shards(shards: dict[str, Tensor], folder: Path, group: Any = None) -> Shards:
    """Writes DTensors into a new directory, in a subdirectory for every PART bytes of a rank, since
    the library copies twice what it writes. All ranks of the process group must call it (None: of
    the default group). The files are on the disk when it returns. Raises OSError on all ranks if
    one cannot write.
    """
    import torch.distributed.checkpoint as dcp

    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    for number, some in enumerate(_cut(shards, PART * ranks)):
        try:
            place = str(folder / f"{number}")
            writer = dcp.HuggingFaceStorageWriter(place, save_distributed=True)
            dcp.save(some, storage_writer=writer, process_group=group)
        except dcp.CheckpointException as error:  # the same on all ranks, and no Exception
            first, _ = next(iter(error.failures.values()))
            raise OSError(getattr(first, "errno", None), str(first)) from first
    files = sorted(folder.rglob("*.safetensors"))[rank::ranks]
    own = {str(file.relative_to(folder)): _flushed(file) for file in files}
    found: list[Any] = [None] * ranks
    torch.distributed.all_gather_object(found, own, group)
    return {"folder": folder.name, "files": {k: v for part in found for k, v in part.items()}}


def _cut(tensors: Mapping[str, Tensor], size: int) -> Iterator[dict[str, Tensor]]:
    """Yields the tensors in parts of at most `size` bytes, or of one tensor."""
    part: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if part and sum(one.nbytes for one in (*part.values(), tensor)) > size:
            yield part
            part = {}
        part[name] = tensor
    yield part


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


def read_shards(place: Path, shards: Shards, whole: bool) -> Iterator[tuple[list[Any], Tensor]]:
    """Yields (path in the entries, tensor) of the tensors that `write_shards` wrote: whole, or
    without values for `parts_like`. place: the directory of the checkpoint. Raises ShardsError if a
    file is missing, or is another one.
    """
    import torch.distributed.checkpoint as dcp

    for folder in sorted(_checked(place, shards).iterdir()):
        reader = dcp.HuggingFaceStorageReader(str(folder))
        device = "cpu" if whole else "meta"
        state = {
            key: torch.empty(entry.size, dtype=entry.properties.dtype, device=device)
            for key, entry in reader.read_metadata().state_dict_metadata.items()
            if isinstance(entry, dcp.TensorStorageMetadata)
        }
        if whole:
            _load(state, folder)
        for key, tensor in state.items():
            if not whole:
                tensor.saved_as = folder, key  # type: ignore[attr-defined]
            yield json.loads(key), tensor


def parts_like(values: Mapping[Key, Tensor], likes: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
    """Returns the values, each in the parts in which the DTensor `likes` of its key is divided;
    whole where there is none. Those that `read_shards` left without values are read, for which
    all ranks must call it.
    """
    found, reads = {}, dict[Path, dict[str, Tensor]]()
    for key, value in values.items():
        if value.is_meta and hasattr(value, "saved_as"):
            folder, saved = value.saved_as
            found[key] = torch.empty_like(likes[key], dtype=value.dtype).detach()
            reads.setdefault(folder, {})[saved] = found[key]
        else:
            found[key] = part_like(value, likes.get(key, value))
    for folder, state in reads.items():
        _load(state, folder)
    return found


def _load(state: dict[str, Tensor], folder: Path) -> None:
    """Reads tensors, in place; all ranks call it if one of them is a DTensor."""
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is one process
        reader = dcp.HuggingFaceStorageReader(str(folder))
        dcp.load(state, storage_reader=reader, no_dist=not any(map(is_shard, state.values())))


def _checked(place: Path, shards: Shards) -> Path:
    """Returns the directory of the tensors, whose files have their checksums."""
    name = shards["folder"]
    if Path(name).name != name or not name.startswith(PREFIX):
        raise ShardsError(f"its tensors cannot be in {name!r}")
    for file, checksum in shards["files"].items():
        path = place / name / file
        if not re.fullmatch(r"\d+/[\w-]+\.safetensors", file) or not path.is_file():
            raise ShardsError(f"{name}/{file} is missing")
        if _crc32(path) != checksum:
            raise ShardsError(f"{name}/{file} does not have its checksum")
    return place / name
