"""A checkpoint, read only if all of it is as it was written. It may come from elsewhere: nothing in
it is executed.
"""

import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xformer_kit.config.saved import LARGEST, parse_config
from xformer_kit.registry import ConfigError, shown

FOLDER = 0x10  # of an entry's attributes
Check = Callable[[Any, str], str | None]  # (value, its path) -> what is wrong with it


class DamagedError(Exception):
    """A file that is not a whole checkpoint; the text is the reason."""


def read(path: Path, needs: Iterable[str] = ("state_dict", "global_step")) -> dict[str, Any]:
    """The mapping of a checkpoint: tensors and plain values, on the CPU.

    Raises DamagedError for a file that cannot be read, lacks one of the keys `needs`, or has an
    entry that is not as ENTRIES says.
    """
    state = read_mapping(path)
    if missing := [key for key in needs if key not in state]:
        raise DamagedError(f"it has no {', '.join(missing)}")
    for key, check in ENTRIES.items():
        if key in state and (fault := check(state[key], key)):
            raise DamagedError(f"its {fault}")
    return state


def read_weights(path: Path, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a file maps names to. Raises DamagedError for a file that cannot be read, or
    does not have all those that are wanted, in their shapes.
    """
    state = read_mapping(path)
    if fault := weights_fault(state, wanted, "weights"):
        raise DamagedError(f"its {fault}")
    return state


def read_mapping(path: Path) -> dict[Any, Any]:
    """The mapping that torch.save wrote. Each entry of the archive is compared with its checksum
    first. Raises DamagedError.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            fault = _fault(archive)
        if fault is None:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (
        Exception
    ) as error:  # one changed bit of the archive's directory can raise any of a dozen types
        reason = next(iter(str(error).splitlines()), "").rstrip(".")
        raise DamagedError(f"{_size(path)}{type(error).__name__}: {reason}") from error
    if fault is not None:
        raise DamagedError(fault)
    if not isinstance(state, dict):
        raise DamagedError(f"it holds no mapping but {type(state).__name__}")
    return state


def weights_fault(found: Mapping[Any, Any], wanted: Mapping[str, Tensor], path: str) -> str | None:
    """What of the tensors `found` is not as wanted: one that is missing, or of another type or
    shape.
    """
    if missing := [name for name in wanted if name not in found]:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        return f"{path} must have {missing[0]}{more}, as the model has"
    for name, tensor in wanted.items():
        if fault := _tensor(found[name], f"{path}.{name}"):
            return fault
        if found[name].shape != tensor.shape:
            return (
                f"{path}.{name} must have the shape {_shape(tensor)} that the model has; got"
                f" {_shape(found[name])}"
            )
    return None


def _fault(archive: zipfile.ZipFile) -> str | None:
    """What of an archive is not as torch.save writes it."""
    for entry in archive.infolist():
        if (
            entry.external_attr & FOLDER
            # zipfile reads it all the same; torch reads nothing of it, and leaves the tensor as it
            # is
        ):
            return f"'{entry.filename}' is marked as a folder"
    damaged = archive.testzip()
    return None if damaged is None else f"'{damaged}' does not have its checksum"


def damage(path: Path) -> str | None:
    """The reason why a file is not a whole checkpoint, or None."""
    try:
        read(path)
    except DamagedError as error:
        return str(error)
    return None


def _size(path: Path) -> str:
    try:
        return f"{path.stat().st_size:,} bytes, "
    except OSError:
        return ""


def got(value: Any) -> str:
    """A plain value, shortened; of anything else its type."""
    if isinstance(value, int) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        return "a number of more than 64 bits"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = shown(value[:SHOWN] if isinstance(value, str) else value)
        return text if len(text) <= SHOWN + 2 else f"{text[:SHOWN]}..."
    return (
        f"a tensor of the shape {_shape(value)}"
        if isinstance(value, Tensor)
        else type(value).__name__
    )


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _type(types: Any, what: str) -> Check:
    """Of one of these types; a bool is no number."""

    def check(value: Any, path: str) -> str | None:
        right = isinstance(value, types) and (isinstance(value, bool) == (types is bool))
        return None if right else f"{path} must be {what}; got {got(value)}"

    return check


def _whole(least: int) -> Check:
    def check(value: Any, path: str) -> str | None:
        right = type(value) is int and least <= value <= LARGEST_NUMBER
        return (
            None
            if right
            else f"{path} must be a whole number of at least {least}; got {got(value)}"
        )

    return check


def number_fault(value: Any, path: str) -> str | None:
    """A tensor of one number is one too: a task of one's own may measure such."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return None
    right = type(value) is float or (
        type(value) is int and -LARGEST_NUMBER <= value <= LARGEST_NUMBER
    )
    return None if right else f"{path} must be a number; got {got(value)}"


def _number_or_none(value: Any, path: str) -> str | None:
    return None if value is None else number_fault(value, path)


def _mapping(each: Check | None = None, key: Any = str) -> Check:
    def check(value: Any, path: str) -> str | None:
        if not isinstance(value, dict):
            return f"{path} must be a mapping; got {got(value)}"
        if odd := [name for name in value if not isinstance(name, key)]:
            return f"{path} must have names as keys; got {got(odd[0])}"
        pairs = value.items() if each else ()
        return next(
            (fault for name, item in pairs if each and (fault := each(item, f"{path}.{name}"))),
            None,
        )

    return check


def _window(value: Any, path: str) -> str | None:
    right = isinstance(value, Tensor) and value.shape == (4,) and value.is_floating_point()
    return None if right else f"{path} must be a tensor of 4 numbers; got {got(value)}"


def _optimizer(value: Any, path: str) -> str | None:
    if fault := _mapping()(value, path):
        return fault
    if missing := [key for key in ("param_groups", "state") if key not in value]:
        return f"{path} must have param_groups and state; it has no {' and no '.join(missing)}"
    groups = value["param_groups"]
    if not isinstance(groups, list) or not groups:
        return f"{path}.param_groups must be a list of mappings; got {got(groups)}"
    for number, group in enumerate(groups):
        if fault := _mapping()(group, here := f"{path}.param_groups[{number}]"):
            return fault
        if not isinstance(group.get("params"), list):
            return f"{here}.params must be a list; got {got(group.get('params'))}"
    return _mapping(_mapping(), key=(int, str))(value["state"], f"{path}.state")


def _mark(value: Any, path: str) -> str | None:
    """Of metrics.csv; empty where a process wrote none."""
    if (fault := _mapping()(value, path)) or not value:
        return fault
    checks = {"rows": _whole(0), "columns": _whole(0), "sha256": _type(str, "a text")}
    return next(
        (
            fault
            for key, check in checks.items()
            if (fault := check(value.get(key), f"{path}.{key}"))
        ),
        None,
    )


def _config(value: Any, path: str) -> str | None:
    if not isinstance(value, str):
        return f"{path} must be a text; got {got(value)}"
    if len(value) > LARGEST:
        return f"{path} must have at most {LARGEST:,} characters; got {len(value):,}"
    try:
        parse_config(value, path)
    except ConfigError as error:
        return str(error).rstrip(".")
    return None


LARGEST_NUMBER = 2**63 - 1
SHOWN = 40  # characters of a value in a message
_tensor = _type(Tensor, "a tensor")
ENTRIES: dict[str, Check] = {  # what each entry of a checkpoint must be where it is there
    "state_dict": _mapping(_tensor),
    "average": _mapping(_tensor),
    "global_step": _whole(0),
    "optimizer": _optimizer,
    "scaler": _mapping(number_fault),
    "window": _window,
    "best": _number_or_none,
    "is_best": _type(bool, "true or false"),
    "validation": _mapping(number_fault),
    "left_out": _whole(0),
    "accumulate": _whole(1),
    "spent": _mapping(number_fault),
    "metrics": _mark,
    "world_size": _whole(1),
    "config": _config,
    "data_fingerprint": _type(str, "a text"),
    "versions": _mapping(),
    "callbacks": _mapping(),
}
