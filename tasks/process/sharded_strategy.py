"""Lightning's strategy for models whose parameters are divided among the ranks."""

from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from tasks import Facts, State
from xformer_kit.model.build import model_parts
from xformer_kit.model.sharding import fill, reshard, shard, sync_gradients
from xformer_kit.tensors.shards import part, whole

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class ShardedStrategy(ModelParallelStrategy):
    """FSDP2: each rank keeps a part of every parameter, of its gradient and of the optimizer's
    state. All ranks train on different data.

    options: those of trainer.strategy=fsdp and hsdp. Lightning's own class reads the state of the
    LightningModule, whose names a task changes; this one that of the model in it.
    """

    def __init__(self, ranks: int, options: Facts):
        offload = bool(options.get("cpu_offload"))
        backend = "cpu:gloo,cuda:nccl" if offload else None
        super().__init__(ranks, 1, process_group_backend=backend)
        self.options = options
        self.ranks = ranks
        self.host_group: Any = None  # of processes that write checkpoints while the model trains
        self.syncs_each = options.get("sync_gradients") == "each"
        reshards = options.get("reshard_after_forward", True)
        policy: dict[str, Any] = {"reshard_after_forward": reshards}
        gathered, reduced = (
            DTYPES.get(options.get(k) or "") for k in ("gather_dtype", "reduce_dtype")
        )
        if gathered or reduced:
            policy["mp_policy"] = MixedPrecisionPolicy(gathered, reduced, cast_forward_inputs=False)
        if offload:
            policy["offload_policy"] = CPUOffloadPolicy()
        self.policy = policy

    def shard(self, task: Any) -> None:
        """Divides the parameters of a task's model, in place, and gives them values."""
        model = task.model
        self.parameter_mesh = self._parameter_mesh()
        shard(model, self.parameter_mesh, **self.policy)
        device = torch.device("cpu") if self.options.get("cpu_offload") else self.root_device
        # In the context of configure_model torch's default is the dtype of trainer.precision.
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            fill(model, map(task.build_part, model_parts(model)), device)
        finally:
            torch.set_default_dtype(dtype)
        sync_gradients(model, self.syncs_each)

    def _parameter_mesh(self) -> DeviceMesh:
        """(ranks,), or with hsdp (copies of the model, ranks of a copy)."""
        kind = self.root_device.type
        if self.options["strategy"] != "hsdp":
            return init_device_mesh(kind, (self.ranks,), mesh_dim_names=("shard",))
        group = self.options.get("shard_ranks") or self.num_processes
        sizes = self.ranks // group, group
        return init_device_mesh(kind, sizes, mesh_dim_names=("replicate", "shard"))

    def pre_backward(self, closure_loss: Tensor) -> None:
        """Called before the backward pass of a step's last micro-batch."""
        sync_gradients(self._inner, True)

    def post_backward(self, closure_loss: Tensor) -> None:
        sync_gradients(self._inner, self.syncs_each)

    @property
    def _inner(self) -> nn.Module:
        module: Any = self.lightning_module
        return module.model

    def lightning_module_state_dict(self) -> State:
        """The model's state, with this rank's parts of its parameters."""
        reshard(self._inner)
        return self._inner.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> State:
        """The optimizer's state, by numbers of parameters, with this rank's parts."""
        return optimizer.state_dict()

    def host_copy(self, state: State) -> State:
        """A copy of a state in the host's memory, each tensor in the same parts. The first call
        creates `host_group`, for which all ranks must call it.
        """
        if self.host_group is None:
            self.host_group = torch.distributed.new_group(backend="gloo")
            mesh = self.parameter_mesh
            names = mesh.mesh_dim_names
            self.host_mesh = init_device_mesh("cpu", mesh.shape, mesh_dim_names=names)

        def copied(tensor: Tensor) -> Tensor:
            values = part(tensor).detach().to("cpu", copy=True)
            if not isinstance(tensor, DTensor):
                return values
            return DTensor.from_local(
                values,
                self.host_mesh,
                tensor.placements,
                run_check=False,
                shape=tensor.shape,
                stride=tensor.stride(),
            )

        return tree_map_only(Tensor, copied, state)

    def gathered(self, state: State) -> State:
        """Whole tensors on the first rank, {} on the others, which must call it too."""

        def on_cpu(value: Tensor) -> Tensor | None:
            found = whole(value)
            return found.cpu() if self.is_global_zero else None

        found = tree_map_only(Tensor, on_cpu, state)
        return found if self.is_global_zero else {}
