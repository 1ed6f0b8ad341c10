"""Reads checkpoints. A file is checked completely before it is used, and nothing in it is executed,
so that it may come from an untrusted source.
"""

import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xformer_kit.config.saved.config_file import MAX_CONFIG_BYTES, parse_config
from xformer_kit.files.saved_files import readable
from xformer_kit.registry import ConfigError, format_value

FOLDER = 0x10  # flag in an entry's attributes
Check = Callable[[Any, str], str | None]  # (value, its path) -> its fault, or None


class DamagedError(Exception):
    """Raised for a file that is not a valid checkpoint; the message is the reason."""


def read(path: Path, required: Iterable[str] = ("state_dict", "global_step")) -> dict[str, Any]:
    """Returns the mapping of a checkpoint: tensors and plain values, on the CPU.

    Raises DamagedError for a file that cannot be read, lacks one of the `required` keys, or has an
    entry that fails its check in ENTRIES.
    """
    state = read_mapping(path)
    if missing := [key for key in required if key not in state]:
        raise DamagedError(f"it has no {', '.join(missing)}")
    for key, check in ENTRIES.items():
        if key in state and (fault := check(state[key], key)):
            raise DamagedError(f"its {fault}")
    return state


def step_file(folder: Path, step: int | str) -> Path:
    """The file of a checkpoint that is kept for its step."""
    return folder / f"step_{step}.ckpt"


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
        if fault := _tensor(found[name], f"{path}.{name}"):
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


def damage(path: Path) -> str | None:
    """Why a file is not a valid checkpoint, or None."""
    try:
        read(path)
    except DamagedError as error:
        return str(error)
    return None


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


def _first_fault(checks: Iterable[tuple[Check, Any, str]]) -> str | None:
    """The first fault that a check finds in its value, or None."""
    return next((fault for check, *of in checks if (fault := check(*of))), None)


def _of_type(types: Any, description: str) -> Check:
    """A check that a value has one of these types; a bool is not a number."""

    def check(value: Any, path: str) -> str | None:
        valid = isinstance(value, types) and (isinstance(value, bool) == (types is bool))
        return _require(valid, value, path, f"be {description}")

    return check


def _integer(least: int) -> Check:
    """A check that a value is an integer from `least` to MAX_INT."""

    def check(value: Any, path: str) -> str | None:
        valid = type(value) is int and least <= value <= MAX_INT
        return _require(valid, value, path, f"be a whole number of at least {least}")

    return check


def number_fault(value: Any, path: str) -> str | None:
    """Why a value is not a number, or None. A tensor of one element is a number."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return None
    valid = type(value) is float or (type(value) is int and -MAX_INT <= value <= MAX_INT)
    return _require(valid, value, path, "be a number")


def _mapping(each: Check | None = None, key: Any = str) -> Check:
    """A check that a value is a mapping whose keys have this type, and that `each` of its values
    passes a check.
    """

    def check(value: Any, path: str) -> str | None:
        if not isinstance(value, dict):
            return _require(False, value, path, "be a mapping")
        if bad_keys := [name for name in value if not isinstance(name, key)]:
            return _require(False, bad_keys[0], path, "have names as keys")
        return _first_fault((each, item, f"{path}.{name}") for name, item in value.items() if each)

    return check


def _metric_sums(value: Any, path: str) -> str | None:
    valid = isinstance(value, Tensor) and value.shape == (3,) and value.is_floating_point()
    return _require(valid, value, path, "be a tensor of 3 numbers")


def _best_steps(value: Any, path: str) -> str | None:
    """Why a value is not a list of [step, value of a metric], or None."""
    if not isinstance(value, list):
        return _require(False, value, path, "be a list")
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 2:
            return _require(False, entry, path, "hold pairs of a step and a number")
        step, number = entry
        if fault := _integer(0)(step, path) or number_fault(number, path):
            return fault
    return None


def _stop(value: Any, path: str) -> str | None:
    """Why a value is not [step, reason, detail] of the end of a run, or None."""
    if not isinstance(value, list) or len(value) != 3:
        return _require(False, value, path, "be a list of a step and two texts")
    is_text = _of_type(str, "a text")
    checks = zip((_integer(0), is_text, is_text), value, strict=True)
    return _first_fault((check, entry, path) for check, entry in checks)


def _optimizer(value: Any, path: str) -> str | None:
    """Why a value is not the state of an optimizer, or None."""
    if fault := _mapping()(value, path):
        return fault
    if missing := [key for key in ("param_groups", "state") if key not in value]:
        return f"{path} must have param_groups and state; it has no {' and no '.join(missing)}"
    groups = value["param_groups"]
    if not isinstance(groups, list) or not groups:
        return _require(False, groups, f"{path}.param_groups", "be a list of mappings")
    for number, group in enumerate(groups):
        group_path = f"{path}.param_groups[{number}]"
        if fault := _mapping()(group, group_path):
            return fault
        parameters = group.get("params")
        if not isinstance(parameters, list):
            return _require(False, parameters, f"{group_path}.params", "be a list")
    return _mapping(_mapping(), key=(int, str))(value["state"], f"{path}.state")


def _metrics_mark(value: Any, path: str) -> str | None:
    """Why a value is not the size and checksum of metrics.csv, or None. It is empty if a process
    writes none.
    """
    if (fault := _mapping()(value, path)) or not value:
        return fault
    checks = {"rows": _integer(0), "columns": _integer(0), "sha256": _of_type(str, "a text")}
    return _first_fault((check, value.get(key), f"{path}.{key}") for key, check in checks.items())


def _config(value: Any, path: str) -> str | None:
    """Why a value is not the text of a config, or None."""
    if not isinstance(value, str):
        return _require(False, value, path, "be a text")
    if len(value) > MAX_CONFIG_BYTES:
        return f"{path} must have at most {MAX_CONFIG_BYTES:,} characters; got {len(value):,}"
    try:
        parse_config(value, path)
    except ConfigError as error:
        return str(error).rstrip(".")
    return None


MAX_INT = 2**63 - 1
MAX_SHOWN = 40  # characters of a value in a message
_tensor = _of_type(Tensor, "a tensor")
ENTRIES: dict[str, Check] = {  # the check of each entry, if it exists
    "state_dict": _mapping(_tensor),
    "average": _mapping(_tensor),
    "global_step": _integer(0),
    "optimizer": _optimizer,
    "scaler": _mapping(number_fault),
    "metric_sums": _metric_sums,
    "best_steps": _best_steps,
    "stop": _stop,
    "validation": _mapping(number_fault),
    "skipped_steps": _integer(0),
    "accumulate": _integer(1),
    "spent": _mapping(number_fault),
    "metrics": _metrics_mark,
    "world_size": _integer(1),
    "config": _config,
    "data_fingerprint": _of_type(str, "a text"),
    "versions": _mapping(),
    "callbacks": _mapping(),
}
