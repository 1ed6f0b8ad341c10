"""Reads the file of a W&B run that was logged offline."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIMEOUT = 120  # seconds


def finished_records(directory: Path) -> list[Any]:
    """The records of the only run in a directory's wandb/, which has ended. A process of W&B's own
    writes the last one, a little late.
    """
    (run,) = (directory / "wandb").glob("offline-run-*")
    until = time.monotonic() + TIMEOUT
    while not (found := list(records(run))) or found[-1].WhichOneof("record_type") != "exit":
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def records(folder: Path) -> Iterator[Any]:
    """Yields the records of an offline run: LevelDB's log format after a header of 7 bytes. A
    record that is not yet written to its end is left out.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("*.wandb")
    data, at, component = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        if at + 7 + length > len(data):
            return
        component += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(component)
            component = b""
            yield record
