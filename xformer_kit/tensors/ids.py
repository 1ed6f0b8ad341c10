"""Checks of ids and of the fields of tokens, and rows of tables."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.registry import config_error


def table_rows(name: str, rows: Tensor, table: Tensor, fix: str = "") -> Tensor:
    """These rows (b, t) of a table (n, dim). Raises ConfigError for rows outside of it; on a GPU
    torch raises its own error, because no value is read.
    """
    if not _integers(rows):
        raise config_error(name, "must be integers", got=rows.dtype)
    try:
        return F.embedding(rows, table)
    except IndexError:
        got, rule = number_outside(rows, len(table)), f"must be from 0 to {len(table) - 1}"
        raise config_error(name, rule, got=got, fix=fix) from None


def number_outside(numbers: Tensor, size: int) -> int | None:
    """The least or the largest of the numbers, if it is not from 0 to size - 1. Reads values."""
    least, largest = (int(n) for n in numbers.aminmax())
    return least if least < 0 else largest if largest >= size else None


def _integers(x: Any) -> bool:
    return isinstance(x, Tensor) and not (
        x.is_floating_point() or x.is_complex() or x.dtype == torch.bool
    )


def checked_ids(name: str, ids: Any, **fields: Any) -> Tensor:
    """Returns ids (b, t) of any integer type as int64. Raises ConfigError if they are not ids, if a
    field is not (b, t) or (1, t), or if it is not of bool (`real`, `prefix`) or of integers.
    """
    if not _integers(ids) or ids.ndim != 2 or not ids.numel():
        raise config_error(
            name,
            "must be a tensor of ids (batch, tokens) with at least one token",
            got=_described(ids),
            fix="Try torch.tensor([[1, 2]]).",
        )
    rows, length = ids.shape
    for key, field in fields.items():
        kind = "bool" if key.endswith(("real", "prefix")) else "integers"
        typed = _integers(field) or getattr(field, "dtype", None) == torch.bool
        if field is not None and not (
            typed
            and _integers(field) == (kind == "integers")
            and tuple(field.shape) in ((1, length), (rows, length))
        ):
            rule = f"must be a tensor ({rows}, {length}) of {kind}"
            raise config_error(key, rule, got=_described(field))
    return ids.long()


def _described(x: Any) -> str:
    return f"{tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
