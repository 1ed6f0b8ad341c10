"""Shards a model's parameters over processes, with torch's fully_shard."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from xformer_kit.model.model import Model
from xformer_kit.model.stack import Stack


def shard(model: Model, mesh: DeviceMesh | None = None, **policy: Any) -> Model:
    """Shards every block, and the other parameters as one group, in place. `policy`: options of
    fully_shard.

    Every rank must have the same weights. Gradients are averaged over ranks. A training step may
    call `model(ids)`, `model.hidden(tokens)` and `model.head(hidden, target)`.
    """
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
