"""Shards a model's parameters over processes, with torch's fully_shard."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import Shard

from xformer_kit.model.model import Model
from xformer_kit.model.stack import Stack
from xformer_kit.tensors import canonical, parameter_table
from xformer_kit.tensors.shards import part, part_like


def shard(model: Model, mesh: DeviceMesh | None = None, **policy: Any) -> Model:
    """Shards every block, and the other parameters as one group, in place: each rank keeps a part
    of every parameter (FSDP2; Zhao et al., 2023, arXiv:2304.11277). `policy`: options of
    fully_shard. mesh: (ranks,), or (copies, ranks of a copy).

    Every rank must have the same weights. Gradients are averaged over ranks. A training step may
    call `model(ids)`, `model.hidden(tokens)` and `model.head(hidden, target)`. After a forward pass
    without a backward pass, call `reshard` before parameters are read or changed.

    The first axis is divided; of experts, whose number may be below that of the ranks, one that the
    ranks divide.
    """
    table = parameter_table(model)
    of_experts = {
        parameter
        for name, parameter in model.named_parameters()
        if (table[canonical(name)].axes or ("",))[0] == "experts"
    }
    ranks = mesh.size(-1) if mesh else torch.distributed.get_world_size()
    policy["shard_placement_fn"] = lambda parameter: (
        Shard(_even_axis(parameter, ranks)) if parameter in of_experts else None
    )
    for stack in (module for module in model.modules() if isinstance(module, Stack)):
        for block in stack.named_blocks.values():
            fully_shard(block, mesh=mesh, **policy)
    # Parameters outside the blocks (embedding, tables of positions) are used by all layers and by
    # the head: they stay unsharded from the forward pass to the end of the backward pass.
    fully_shard(model, mesh=mesh, **(policy | {"reshard_after_forward": False}))
    for name in ("hidden", "encode"):
        register_fsdp_forward_method(model, name)
    model.head.register_forward_pre_hook(partial(_unshard_head, model))
    return model


@torch.no_grad()
def fill(model: Model, built: Iterable[Model], device: torch.device) -> None:
    """Gives a sharded model, which is on the meta device, the values of models that are built in
    parts (`build_model`, `model_parts`), of which one exists at a time. device: of its tensors.
    """
    model.to_empty(device=device)
    own = dict(_tensors(model))
    missing = set(own)
    for one in built:
        for name, value in _tensors(one):
            if not value.is_meta:
                part(own[name]).copy_(part(part_like(value, own[name])))
                missing.discard(name)
    if missing:
        raise RuntimeError(f"no part of the model has values for {', '.join(sorted(missing))}")


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields (name, tensor) of the parameters and buffers."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        yield canonical(name), value


def _even_axis(parameter: Tensor, ranks: int) -> int:
    """The first axis that the ranks divide evenly, as fully_shard requires of others than 0; 0 if
    there is none.
    """
    return next((axis for axis, size in enumerate(parameter.shape) if size % ranks == 0), 0)


@contextmanager
def whole_parameters(model: nn.Module) -> Iterator[None]:
    """A context in which each rank has all parameters of a sharded model, to compute with a part of
    it outside of its forward pass; no effect on a model that is not sharded.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
    try:
        yield
    finally:
        reshard(model)


def reshard(model: nn.Module) -> None:
    """Frees the unsharded parameters that a forward pass has left; no effect on a model that is
    not sharded.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def sync_gradients(model: nn.Module, now: bool) -> None:
    """Sets whether the next backward passes average the gradients of all ranks, with those that
    are not averaged yet, or keep them.
    """
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(now)


def _unshard_head(
    model: nn.Module, head: nn.Module, inputs: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """What fully_shard does before a forward method: the head, whose weight may be the model's
    embedding, can be called on its own, also after a backward pass, and computes in the policy's
    dtype.
    """
    model.unshard()  # type: ignore[operator]  # no effect if it is unsharded already
    hidden, *rest = inputs
    return hidden.to(head.weight.dtype), *rest  # type: ignore[arg-type]
