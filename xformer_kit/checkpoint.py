"""The content of a checkpoint and how it is read. A file is checked completely before it is used,
and nothing in it is executed, so that it may come from an untrusted source.
"""

import importlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from xformer_kit.checkpoint_shards import Shards, ShardsError, read_shards
from xformer_kit.config.saved.config_file import MAX_CONFIG_BYTES, parse_config
from xformer_kit.files.saved_files import read_object, readable
from xformer_kit.hub.load import load_model
from xformer_kit.registry import ConfigError, config_error, format_value
from xformer_kit.registry.messages import one_line
from xformer_kit.text.printable import printable

FOLDER = 0x10  # flag in an entry's attributes


class DamagedError(Exception):
    """Raised for a file that is not a valid checkpoint; the message is the reason."""


MODEL = "model.safetensors"  # weights of an imported run, by our names
PUBLISHED = "published.json"  # the directory of a published model whose weights a run has


def step_file(folder: Path, step: int | str) -> Path:
    """The file of a checkpoint that is kept for its step."""
    return folder / f"step_{step}.ckpt"


def checkpoint_files(folder: Path) -> dict[str, Path]:
    """Returns {name: file} of the checkpoints of a run: best, last, previous, and kept steps; of an
    imported one its weights, model, or where they are, published.
    """
    files = {name: folder / f"{name}.ckpt" for name in ("best", "last", "previous")}
    files |= {Path(name).stem: folder / name for name in (MODEL, PUBLISHED)}
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
            if fault := _archive_fault(archive):
                raise DamagedError(fault)
        _import_classes_of_state(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (DamagedError, ConfigError):
        raise
    except Exception as error:  # a damaged archive can raise exceptions of a dozen types
        reason = printable(next(iter(str(error).splitlines()), "")).rstrip(".")
        raise DamagedError(f"{_size(path)}{type(error).__name__}: {reason}") from error
    if not isinstance(state, dict):
        raise DamagedError(f"it holds no mapping but {type(state).__name__}")
    return state


def _import_classes_of_state(path: Path) -> None:
    """Imports the library whose tensors a checkpoint holds, which then counts them as safe to read:
    torchao, for the state of adamw_8bit. Raises ConfigError if it is not installed.
    """
    classes = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    if not any(name.startswith("torchao.") for name in classes):
        return
    try:
        importlib.import_module("torchao.optim")
    except ImportError:
        rule = "has an optimizer's state of the library torchao, which is not installed"
        raise config_error(path, rule, fix="pip install 'xformer_kit[optim]'") from None


def weights_fault(
    found: Mapping[Any, Any], expected: Mapping[str, Tensor], path: str
) -> str | None:
    """Why the tensors `found` are not those expected, or None: one is missing, or has another type
    or shape.
    """
    if missing := next((name for name in expected if name not in found), None):
        return f"{path} must have {missing}, as the model has"
    for name, tensor in expected.items():
        if fault := next(_type_faults(Tensor, found[name], f"{path}.{name}"), None):
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


def number_fault(value: Any, path: str) -> str | None:
    """Why a value is not a number, or None. A tensor of one element is a number."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return None
    if type(value) is float or (type(value) is int and -MAX_INT <= value <= MAX_INT):
        return None
    return f"{path} must be a number; got {describe_value(value)}"


def _type_faults(hint: Any, value: Any, path: str) -> Iterator[str]:
    """Yields why a value of a file has not the type of a field of Checkpoint. A bool is not a
    number, a whole number is at least 0, and a TypedDict may have more keys.
    """
    origin, args, typed_dict = get_origin(hint), get_args(hint), is_typeddict(hint)
    kind: Any = dict if typed_dict else origin or hint
    if origin is UnionType:  # a file has no None
        yield from _type_faults(args[0], value, path)
    elif hint is int or origin is Annotated:
        least = args[1] if args else 0
        if type(value) is not int or not least <= value <= MAX_INT:
            rule = f"must be a whole number of at least {least}"
            yield f"{path} {rule}; got {describe_value(value)}"
    elif hint is float:
        yield from filter(None, [number_fault(value, path)])
    elif hint is not Any:
        if not isinstance(value, kind) or (kind is tuple and len(value) != len(args)):
            yield f"{path} must be {TYPES[kind]}; got {describe_value(value)}"
            return
        parts: Iterable[tuple[Any, Any, str]] = ()
        if typed_dict:
            hints = get_type_hints(hint)
            parts = ((of, value.get(name), f"{path}.{name}") for name, of in hints.items())
        elif kind is dict:
            yield from (fault for name in value for fault in _type_faults(args[0], name, path))
            parts = ((args[1], item, f"{path}.{name}") for name, item in value.items())
        elif kind is list:
            parts = ((args[0], item, f"{path}[{at}]") for at, item in enumerate(value))
        elif kind is tuple:
            parts = ((of, item, path) for of, item in zip(args, value, strict=True))
        for part in parts:
            yield from _type_faults(*part)


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
    dict: "a mapping of names",
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
    state: dict[Any, dict[str, Any]]  # by number or name of a parameter


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
    shards: Shards | None = None  # tensors of a sharded model, which are in files of their own

    def entries(self) -> dict[str, Any]:
        """Returns the mapping of its file."""
        return {name: value for name, value in vars(self).items() if value is not None}


class ImportedWeights(Checkpoint):
    """The weights of an imported run, before its first step; no run writes one."""


def read(path: Path, whole: bool = True) -> Checkpoint:
    """Returns the checkpoint in a file, with its tensors on the CPU. whole: whether those of a
    sharded model are, too; otherwise `parts_like` reads this rank's parts.

    Raises DamagedError for a file that cannot be read, lacks a field, or has a value of another
    type, and for files of tensors that are missing or damaged.
    """
    if path.name in (MODEL, PUBLISHED):
        return _imported(path)
    state, hints = read_mapping(path), get_type_hints(Checkpoint, include_extras=True)
    if missing := [name for name in hints if name not in state and not hasattr(Checkpoint, name)]:
        raise DamagedError(f"it has no {', '.join(missing)}")
    found = {name: state[name] for name in hints if name in state}
    if "shards" in found:
        _add_shards(found, path.parent, whole)
    faults = (fault for name in found for fault in _type_faults(hints[name], found[name], name))
    if fault := next(faults, None) or _config_fault(state["config"]):
        raise DamagedError(f"its {fault}")
    return Checkpoint(**found)


def _add_shards(entries: dict[str, Any], place: Path, whole: bool) -> None:
    """Reads the tensors of a sharded model into the entries of a checkpoint. Raises
    DamagedError.
    """
    if fault := next(_type_faults(Shards, entries["shards"], "shards"), None):
        raise DamagedError(f"its {fault}")
    try:
        for (*path, name), tensor in read_shards(place, entries.pop("shards"), whole):
            inner: Any = entries
            for key in path:
                inner = inner[key]
            inner[name] = tensor
    except ShardsError as error:
        raise DamagedError(str(error)) from error
    except Exception as error:  # a damaged file can raise exceptions of several types
        raise DamagedError(f"its tensors cannot be read: {one_line(error)}") from error


def shard_folder(path: Path) -> str | None:
    """Returns the name of the directory with the tensors of a checkpoint; None if they are in its
    file. Raises DamagedError.
    """
    shards = read_mapping(path).get("shards")
    return shards["folder"] if shards else None


def _imported(path: Path) -> ImportedWeights:
    """Returns the weights of an imported run."""
    text = readable(path.parent.parent / "config.yaml").read_text("utf-8")
    if path.name == MODEL:
        state = read_safetensors(path)
    else:
        folder = read_object(path, {"folder": str}, ["folder"])["folder"]
        config = parse_config(text, "config")
        state = load_model(Path(folder), config, config["model"]["vocab_size"]).state_dict()
    return ImportedWeights(
        state_dict=state,
        global_step=0,
        optimizer={"param_groups": [], "state": {}},
        metric_sums=(0.0, 0.0, 0.0),
        best_steps=[],
        validation={},
        skipped_steps=0,
        accumulate=1,
        spent={},
        metrics_csv={"rows": 0, "columns": 0, "sha256": ""},
        world_size=1,
        config=text,
        data_fingerprint="",
        versions={},
    )


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a file, which share its memory. Raises DamagedError."""
    try:
        return load_file(readable(path))
    except (SafetensorError, OSError) as error:
        raise DamagedError(one_line(error)) from error
