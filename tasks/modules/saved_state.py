"""What a task saves in checkpoints and loads from them."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.optim import Optimizer

from tasks import Config, Facts, State
from xformer_kit.checkpoint import Checkpoint
from xformer_kit.checkpoint_shards import parts_like
from xformer_kit.tensors.shards import is_shard


class SavedState(pl.LightningModule):
    """Base of a task: the state of its model, under names without the prefix of the task, and of
    its optimizer.
    """

    model: Any
    config: Config
    build_part: Any  # a function that builds a part of a model without values; None for others
    metric_sums: Tensor
    _optimizer: Optimizer
    _scaler: Any

    @property
    def is_sharded(self) -> bool:
        """Whether ranks have parts of the parameters, so that all compute what one computes."""
        return hasattr(self.trainer.strategy, "shard")

    def state_dict(self, *args: Any, **kwargs: Any) -> State:  # type: ignore[override]
        """The model's state_dict, so that checkpoints hold its names without the prefix `model.`"""
        return self.model.state_dict(*args, **kwargs)

    def whole_state(self) -> State:
        """The state_dict of all ranks; {} on ranks of a sharded model that are not the first. All
        must call it.
        """
        state, strategy = self.state_dict(), self.trainer.strategy
        return strategy.gathered(state) if self.is_sharded else state  # type: ignore[attr-defined]

    @torch.no_grad()  # a graph of adapters, whose weight torch reads, would hold their parameters
    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        if any(map(is_shard, self.model.parameters())):
            state = parts_like(state, self.state_dict())
        return self.model.load_state_dict(state, strict=strict, assign=assign)

    def load_weights(self, state: State, strict: bool = False) -> None:
        """Loads weights, those of a model that is not sharded yet when it is."""
        if self.build_part is None:
            self.load_state_dict(state, strict)
        else:
            self.weights_to_load = state, strict

    def restore(self, checkpoint: Checkpoint) -> None:
        """Loads a checkpoint; on_fit_start loads the optimizer's state, when there is one."""
        if self.config["trainer"].get("precision") == "64-true":
            self.model.double()  # before Lightning does it, so that no weight is rounded
        self.load_weights(checkpoint.state_dict, strict=True)
        self.step = checkpoint.global_step
        self.skipped_steps = torch.tensor(checkpoint.skipped_steps)
        self.accumulate = checkpoint.accumulate
        self.checkpoint = checkpoint

    def rewind(self, step: int) -> None:
        """Sets the step back to the last one that was finite. The weights are those after it: all
        later updates were skipped.
        """
        self.step = step
        self.skipped_steps = torch.zeros_like(self.skipped_steps)

    def _restore_optimizer(self, checkpoint: Checkpoint) -> None:
        """Loads the states of the optimizer, the metrics' sums and the fp16 scaler."""
        load_optimizer(self._optimizer, checkpoint.optimizer)
        self.metric_sums += self.metric_sums.new_tensor(checkpoint.metric_sums)
        if self._scaler is not None and checkpoint.scaler is not None:
            self._scaler.load_state_dict(checkpoint.scaler)
        self.checkpoint = None


def load_optimizer(optimizer: Optimizer, saved: Facts) -> None:
    """Loads a state. Tensors in the shape of their parameter are divided as it is."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = {number: dict(values) for number, values in saved["state"].items()}
    shaped = {
        (number, name): value
        for number, values in state.items()
        for name, value in values.items()
        if isinstance(value, Tensor) and value.shape == parameters[number].shape
    }
    likes = {key: parameters[key[0]] for key in shaped}
    for (number, name), value in parts_like(shaped, likes).items():
        state[number][name] = value
    optimizer.load_state_dict({**saved, "state": state})
