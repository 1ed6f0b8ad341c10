"""Tensors that ranks share as one DTensor: whole, and this rank's part."""

from typing import Any

from torch import Tensor


def is_shard(value: Any) -> bool:
    """Whether a tensor is a DTensor, of which this rank has a part."""
    return hasattr(value, "full_tensor")


def whole(value: Tensor) -> Tensor:
    """Returns a tensor with the parts of all ranks, which must all call it."""
    return value.full_tensor() if is_shard(value) else value  # type: ignore[attr-defined]


def part(value: Tensor) -> Tensor:
    """Returns this rank's part of a tensor; its memory is that of the tensor."""
    return value.to_local() if is_shard(value) else value  # type: ignore[attr-defined]


def part_like(value: Tensor, like: Tensor) -> Tensor:
    """Returns a tensor that each rank has whole as a DTensor that is divided as `like`, without
    communication; the tensor itself if `like` is not divided.
    """
    if not is_shard(like):
        return value
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(value.to(mesh.device_type), mesh, placements, src_data_rank=None)
