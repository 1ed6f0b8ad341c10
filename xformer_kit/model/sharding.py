"""Split a model's parameters over processes: torch's fully_shard on every block and on the
whole.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from xformer_kit.model.model import Model
from xformer_kit.model.stack import Stack


def shard(model: Model, mesh: DeviceMesh | None = None, **policy: Any) -> Model:
    """Shard every block, and what is left as one group, in place. `policy` are fully_shard's
    options.

    Every rank must hold the same weights. Gradients are means over ranks. What a training step
    calls is ready: `model(ids)`, `model.hidden(tokens)` and `model.head(hidden, target)`.
    """
    for stack in (module for module in model.modules() if isinstance(module, Stack)):
        for block in stack.named_blocks.values():
            fully_shard(block, mesh=mesh, **policy)
    # What is outside the blocks, embedding and tables of positions, is read from the first to the
    # last layer and by the
    # head: it stays gathered from the forward pass to the end of the backward pass.
    fully_shard(model, mesh=mesh, **(policy | {"reshard_after_forward": False}))
    for name in ("hidden", "encode"):
        register_fsdp_forward_method(model, name)
    model.head.register_forward_pre_hook(partial(_at_hand, model))
    return model


def _at_hand(model: nn.Module, head: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What fully_shard does for a forward method: the head, whose weight is the model's, may be
    called by itself, also behind a backward pass, and computes in the policy's type.
    """
    model.unshard()  # type: ignore[operator]  # nothing where it is gathered already
    hidden, *rest = given
    return hidden.to(head.weight.dtype), *rest  # type: ignore[arg-type]
