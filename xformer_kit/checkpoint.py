"""The content of a checkpoint and how it is read. A file is checked completely before it is used,
and nothing in it is executed, so that it may come from an untrusted source.
"""

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypedDict, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from xformer_kit.config.saved.config_file import MAX_CONFIG_BYTES, parse_config
from xformer_kit.files.saved_files import readable
from xformer_kit.registry import ConfigError, format_value

FOLDER = 0x10  # flag in an entry's attributes


class DamagedError(Exception):
    """Raised for a file that is not a valid checkpoint; the message is the reason."""


def step_file(folder: Path, step: int | str) -> Path:
    """The file of a checkpoint that is kept for its step."""
    return folder / f"step_{step}.ckpt"


def checkpoint_files(folder: Path) -> dict[str, Path]:
    """Returns {name: file} of the checkpoints of a run: best, last, previous, and kept steps."""
    files = {name: folder / f"{name}.ckpt" for name in ("best", "last", "previous")}
    files |= {f"{step}": step_file(folder, step) for step in kept_steps(folder)}
    return {name: file for name, file in files.items() if file.is_file()}


def kept_steps(folder: Path) -> list[int]:
    """Returns the steps that have a file of their own, the last one first."""
    names = (path.stem.removeprefix("step_") for path in folder.glob("step_*.ckpt"))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def read_weights(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors of a file by name. Raises DamagedError for a file that cannot be read, or
    that lacks an expected tensor or has it in another shape.
    """
    state = read_mapping(path)
    if fault := weights_fault(state, expected, "weights"):
        raise DamagedError(f"its {fault}")
    return state


def read_mapping(path: Path) -> dict[Any, Any]:
    """Returns the mapping that torch.save wrote, after checking the checksum of each entry of the
    archive. Raises DamagedError.
    """
    try:
        with zipfile.ZipFile(readable(path)) as archive:
            fault = _archive_fault(archive)
        if fault is None:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged archive can raise exceptions of a dozen types
        reason = next(iter(str(error).splitlines()), "").rstrip(".")
        raise DamagedError(f"{_size(path)}{type(error).__name__}: {reason}") from error
    if fault is not None:
        raise DamagedError(fault)
    if not isinstance(state, dict):
        raise DamagedError(f"it holds no mapping but {type(state).__name__}")
    return state


def weights_fault(
    found: Mapping[Any, Any], expected: Mapping[str, Tensor], path: str
) -> str | None:
    """Why the tensors `found` are not those expected, or None: one is missing, or has another type
    or shape.
    """
    if missing := [name for name in expected if name not in found]:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        return f"{path} must have {missing[0]}{more}, as the model has"
    for name, tensor in expected.items():
        if fault := _type_fault(Tensor, found[name], f"{path}.{name}"):
            return fault
        if found[name].shape != tensor.shape:
            return (
                f"{path}.{name} must have the shape {_shape(tensor)} that the model has; got"
                f" {_shape(found[name])}"
            )
    return None


def _archive_fault(archive: zipfile.ZipFile) -> str | None:
    """Why an archive is damaged, an entry marked as a folder or a wrong checksum; or None."""
    for entry in archive.infolist():
        # torch would silently skip it and leave its tensor uninitialised
        if entry.external_attr & FOLDER:
            return f"'{entry.filename}' is marked as a folder"
    damaged = archive.testzip()
    return None if damaged is None else f"'{damaged}' does not have its checksum"


def _size(path: Path) -> str:
    """The size of a file, at the start of a message; empty if it cannot be read."""
    try:
        return f"{path.stat().st_size:,} bytes, "
    except OSError:
        return ""


def describe_value(value: Any) -> str:
    """A plain value, shortened, or the type of another value, for messages."""
    if isinstance(value, int) and not -MAX_INT <= value <= MAX_INT:
        return "a number of more than 64 bits"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = format_value(value[:MAX_SHOWN] if isinstance(value, str) else value)
        return text if len(text) <= MAX_SHOWN + 2 else f"{text[:MAX_SHOWN]}..."
    if isinstance(value, Tensor):
        return f"a tensor of the shape {_shape(value)}"
    return type(value).__name__


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _require(valid: bool, value: Any, path: str, rule: str) -> str | None:
    """The fault of a value that is not valid, or None."""
    return None if valid else f"{path} must {rule}; got {describe_value(value)}"


def number_fault(value: Any, path: str) -> str | None:
    """Why a value is not a number, or None. A tensor of one element is a number."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return None
    valid = type(value) is float or (type(value) is int and -MAX_INT <= value <= MAX_INT)
    return _require(valid, value, path, "be a number")


def _type_fault(hint: Any, value: Any, path: str) -> str | None:
    """Why a value of a file has not the type of a field of Checkpoint, or None. A bool is not a
    number; a whole number is at least 0.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is UnionType:  # a file has no None
        return _type_fault(args[0], value, path)
    if hint is int or origin is Annotated:
        least = args[1] if args else 0
        valid = type(value) is int and least <= value <= MAX_INT
        return _require(valid, value, path, f"be a whole number of at least {least}")
    if hint is float:
        return number_fault(value, path)
    if hint not in TYPES and origin not in TYPES:
        return None if hint is Any else _keys_fault(hint, value, path)
    kind = origin or hint
    if not isinstance(value, kind) or (kind is tuple and len(value) != len(args)):
        return _require(False, value, path, f"be {TYPES[kind]}")
    if kind is dict:
        if bad_keys := [name for name in value if not isinstance(name, args[0])]:
            return _require(False, bad_keys[0], path, "have names as keys")
        return _first_fault((args[1], item, f"{path}.{name}") for name, item in value.items())
    if kind is list:
        return _first_fault((args[0], item, f"{path}[{at}]") for at, item in enumerate(value))
    return _first_fault((each, item, path) for each, item in zip(args, value, strict=False))


def _keys_fault(hint: Any, value: Any, path: str) -> str | None:
    """Why a value has not the keys and the types of a TypedDict, or None; it may have more keys."""
    if fault := _type_fault(dict[str, Any], value, path):
        return fault
    if missing := [key for key in hint.__annotations__ if key not in value]:
        needed = " and ".join(hint.__annotations__)
        return f"{path} must have {needed}; it has no {' and no '.join(missing)}"
    hints = get_type_hints(hint)
    return _first_fault((each, value[name], f"{path}.{name}") for name, each in hints.items())


def _first_fault(typed: Iterable[tuple[Any, Any, str]]) -> str | None:
    """The first fault of (type, value, path), or None."""
    return next((fault for each in typed if (fault := _type_fault(*each))), None)


def _config_fault(text: str) -> str | None:
    """Why a text is not that of a config, or None."""
    if len(text) > MAX_CONFIG_BYTES:
        return f"config must have at most {MAX_CONFIG_BYTES:,} characters; got {len(text):,}"
    try:
        parse_config(text, "config")
    except ConfigError as error:
        return str(error).rstrip(".")
    return None


MAX_INT = 2**63 - 1
MAX_SHOWN = 40  # characters of a value in a message
TYPES = {
    dict: "a mapping",
    list: "a list",
    tuple: "a tuple of its values",
    str: "a text",
    Tensor: "a tensor",
}
Positive = Annotated[int, 1]


class ParamGroup(TypedDict):
    params: list[Any]


class OptimizerState(TypedDict):
    param_groups: list[ParamGroup]
    state: dict[int | str, dict[str, Any]]


class MetricsMark(TypedDict):
    """What metrics.csv has at the step of a checkpoint."""

    rows: int
    columns: int
    sha256: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """The state of a run after an optimizer step: tensors and plain values, under the names of
    these fields in its file. A field that is None is not in the file.
    """

    state_dict: dict[str, Tensor]  # weights as trained
    global_step: int  # optimizer steps
    optimizer: OptimizerState
    # nats, tokens and auxiliary losses of the steps since the last row of metrics.csv
    metric_sums: tuple[float, float, float]
    best_steps: list[tuple[int, float]]  # step, value of checkpoints.metric; the best first
    validation: dict[str, float]  # metrics of the last validation
    skipped_steps: int  # whose loss or gradient was not finite
    accumulate: Positive  # micro-batches per optimizer step
    spent: dict[str, float]  # what Recorder.spent returns
    metrics_csv: MetricsMark
    world_size: Positive
    config: str  # text of config.yaml
    data_fingerprint: str
    versions: dict[str, str]  # of Python and packages
    average: dict[str, Tensor] | None = None  # averaged weights by parameter: validation used them
    stop: tuple[int, str, str] | None = None  # step, reason and detail of a callback's stop
    scaler: dict[str, float] | None = None  # of fp16
    callbacks: dict[str, Any] | None = None  # name -> state of a user's callback

    def entries(self) -> dict[str, Any]:
        """Returns the mapping of its file."""
        return {name: value for name, value in vars(self).items() if value is not None}


def read(path: Path) -> Checkpoint:
    """Returns the checkpoint in a file, with its tensors on the CPU.

    Raises DamagedError for a file that cannot be read, lacks a field, or has a value of another
    type.
    """
    state, hints = read_mapping(path), get_type_hints(Checkpoint, include_extras=True)
    if missing := [name for name in hints if name not in state and not hasattr(Checkpoint, name)]:
        raise DamagedError(f"it has no {', '.join(missing)}")
    found = {name: state[name] for name in hints if name in state}
    fault = _first_fault((hints[name], value, name) for name, value in found.items())
    if fault := fault or _config_fault(state["config"]):
        raise DamagedError(f"its {fault}")
    return Checkpoint(**found)
