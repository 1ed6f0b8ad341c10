"""The Lightning module of training: one optimizer step over several micro-batches.

The losses of micro-batches are sums over tokens. Gradients are divided by the number of tokens of
all micro-batches and ranks, then clipped, before one update.

A batch of Lightning's loop holds all micro-batches of an optimizer step. Optimization is therefore
manual, and Lightning's hooks and callbacks run once per optimizer step.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import all_reduce
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from tasks import Config, Metrics, State
from tasks.modules.auto_accumulate import micro_batches
from tasks.modules.saved_state import SavedState
from tasks.modules.step_hooks import StepHooks
from tasks.modules.step_state import StepState
from tasks.process.exit_codes import SignalBox, encode_signal
from tasks.process.ranks import DataRank
from tasks.process.seeds import derive_seed, seed_generators
from xformer_kit.checkpoint import Checkpoint
from xformer_kit.data.batch import Batch, map_tensors, num_rows
from xformer_kit.metrics import TRAIN_LOSS
from xformer_kit.objective import summed_loss
from xformer_kit.optim import create_optimizer, rates, set_rate
from xformer_kit.optim.freezing import Freezing
from xformer_kit.optim.schedules import SCHEDULES
from xformer_kit.tensors.shards import part, whole


class Task(SavedState):
    """Trains a model on an objective; the config holds the optimizer, the schedule and the trainer.

    `total_steps` are the optimizer steps of the run. `signals` receives the signals of the process.
    """

    def __init__(
        self,
        config: Config,
        model: nn.Module,
        objective: Any,
        *,
        total_steps: int,
        signals: SignalBox | None = None,
    ):
        super().__init__()
        self.automatic_optimization = False
        self.save_hyperparameters(config)
        self.config = config
        self.model = model
        self._choose_frozen()
        self.objective = objective
        self.total_steps = total_steps
        self.signals = signals or SignalBox()
        self.schedule = SCHEDULES.create(config["schedule"], max_steps=total_steps)
        self.stops_at_nonfinite = config["trainer"].get("on_nonfinite", "stop") == "stop"
        self.accumulate = 1  # micro-batches per optimizer step
        self.step = 0  # optimizer steps completed
        self.start_step = 0  # optimizer steps completed before this process began
        self.step_state = StepState()
        # Tokens that this rank has trained on in this process, without padding; a tensor if they
        # are counted on the device.
        self.tokens_read: Any = 0
        # On the device: the first step that was skipped, -1 if there is none; how many were.
        self.first_nonfinite = torch.tensor(-1)
        self.skipped_steps = torch.tensor(0)
        self.checkpoint: Checkpoint | None = (
            None  # checkpoint to resume from, until the optimizer has loaded it
        )
        # Of a model without values, until it is sharded: builds a part of it; what is loaded then.
        self.build_part: Callable[..., nn.Module] | None = None
        self.weights_to_load: tuple[State, bool] = {}, False  # and whether all must be there
        self._gradient_hooks: dict[int, Callable[[Tensor], None]] = OrderedDict()
        self._hooks = StepHooks()

    def _choose_frozen(self) -> None:
        """Chooses the parameters of the model that are not trained."""
        options = self.config["model"]
        self.freezing = Freezing(
            self.model, options.get("freeze") or (), options.get("unfreeze_at")
        )
        self.freezing.set_step(0)

    def configure_model(self) -> None:
        """Called before the strategy wraps the model. A sharded model has other parameters, with
        the values of those before.
        """
        if self.is_sharded:
            self.trainer.strategy.shard(self)  # type: ignore[attr-defined]
            self.load_state_dict(*self.weights_to_load)
            self.weights_to_load = {}, False
            self._choose_frozen()
        self.freezing.in_graph = self.trainer.world_size > 1
        self.freezing.set_step(self.step)

    def configure_optimizers(self) -> Optimizer:
        """Creates the config's optimizer; initial_lr of a group is its learning rate before the
        schedule.
        """
        # A fused step would unscale the gradients of fp16, which Lightning does before clipping.
        scaled = self.config["trainer"].get("precision") == "16-mixed"
        self.freezing.prepare()
        fused = False if scaled else None
        optimizer = create_optimizer(self.config["optim"], self.model, fused)
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", float(group["lr"]))
        self.freezing.set_step(self.step)
        return optimizer

    def on_fit_start(self) -> None:
        """Prepares training on the trainer's device: the optimizer's state of the checkpoint, the
        sums over steps, and the number of micro-batches.
        """
        trainer = self.trainer
        self._optimizer: Optimizer = trainer.optimizers[0]
        self._trainable = [p for p in self.model.parameters() if p.requires_grad]
        self._scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._hooks = StepHooks(trainer.callbacks)  # type: ignore[attr-defined]
        # Whether the optimizer skips a step by a flag on the device (found_inf), without waiting.
        self._skips_on_device = (
            bool(getattr(self._optimizer, "_step_supports_amp_scaling", False))
            and self.device.type != "cpu"
        )
        self._sum_dtype = torch.float32 if self.device.type == "mps" else torch.float64
        # Sums since the last row of metrics.csv, as in StepState.sums.
        self.metric_sums = torch.zeros(3, dtype=self._sum_dtype, device=self.device)
        self.first_nonfinite = self.first_nonfinite.to(self.device)
        self.skipped_steps = self.skipped_steps.to(self.device)
        self._data_rank = DataRank.of(trainer)
        self._seed = self.config["seed"]
        self.start_step = self.step
        self.model.before_steps()  # type: ignore[operator]
        if self.checkpoint:
            self._restore_optimizer(self.checkpoint)
        # After the optimizer's state has been loaded, which needs memory.
        self.accumulate = micro_batches(self)
        self.signals.waits_for_step = True  # from here a signal waits for the end of the step
        self._set_global_step()
        # Lightning counts batches from here to the next validation.
        loop = trainer.fit_loop.epoch_loop
        loop.batch_progress.total.ready = self.step
        # The step that Lightning's callbacks pass to loggers.
        loop.on_load_checkpoint({"_batches_that_stepped": self.step})

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """One optimizer step on this rank's examples of it."""
        self._start_step()
        batch = self.objective.add_step_totals(self.model, batch, self._sum_over_ranks)
        for micro in range(self.accumulate):
            self.seed_micro_batch(self.step, micro)
            loss = self._micro_batch_loss(self.micro_batch(batch, micro), micro)
            self._hooks.call("on_before_backward", self, loss)
            if micro == self.accumulate - 1:
                self.trainer.strategy.pre_backward(loss)  # ranks average gradients in this one
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            self._hooks.call("on_after_backward", self)
        self.trainer.strategy.post_backward(loss)
        self.freezing.after_backward(self.step)
        self._reduce_sums()
        self.step_state.complete = False
        # The context of trainer.precision is for the model: an optimizer chooses its own.
        with torch.autocast(self.device.type, enabled=False):
            self._take_step()
        self._hooks.call("on_before_zero_grad", self, self._optimizer)
        self._optimizer.zero_grad()
        self.step += 1
        self.tokens_read = self.tokens_read + self.objective.size(batch)
        self._finish_step()

    def _take_step(self) -> None:
        """Averages the gradients and updates the weights."""
        if self._scaler is None:
            self._average_gradients()
            self._update_weights()
        else:  # fp16: the scaler skips steps that are not finite
            self._scaler.unscale_(self._optimizer)
            self._average_gradients()
            self._scaler.step(self._optimizer)
            self._scaler.update()

    def _average_gradients(self) -> None:
        """Turns gradients of the summed loss into those of the mean loss per token, stores their
        norm, calls the gradient hooks, and clips the gradients.

        The strategy has averaged the gradients of the ranks with different data; their number
        turns them into sums.
        """
        gradients = [p.grad for p in self._trainable if p.grad is not None]
        clip = self.config["trainer"].get("gradient_clip_val")
        scale = self._data_rank.ranks / self.step_state.tokens
        if "on_before_optimizer_step" in self._hooks:
            torch._foreach_mul_(list(map(part, gradients)), scale.to(gradients[0].dtype))
            scale = torch.ones_like(scale)
            self._hooks.call("on_before_optimizer_step", self, self._optimizer)
            gradients = [p.grad for p in self._trainable if p.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(gradients))
        gradients = [part(gradient) for gradient in gradients]
        self.step_state.grad_norm = norm * scale
        for hook in self._gradient_hooks.values():
            hook(scale)
        by_norm = self.config["trainer"].get("gradient_clip_algorithm", "norm") == "norm"
        if clip is not None and by_norm:
            scale = scale * (clip / (self.step_state.grad_norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, scale.to(gradients[0].dtype))
        if clip is not None and not by_norm:
            torch._foreach_clamp_min_(gradients, -clip)
            torch._foreach_clamp_max_(gradients, clip)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.step_state.complete = True  # Lightning has called this hook of all callbacks before

    def register_gradient_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls `hook(scale)` in each step, before clipping. The gradient of the mean loss is
        scale * parameter.grad.
        """
        handle = RemovableHandle(self._gradient_hooks)
        self._gradient_hooks[handle.id] = hook
        return handle

    def tokens_per_step(self) -> float:
        """Mean number of tokens of a step, over all ranks, since this process began; 0 before its
        first step.
        """
        return self.total_tokens() / max(1, self.step - self.start_step)

    def total_tokens(self) -> float:
        """Number of tokens that all ranks have read since this process began, without padding; an
        estimate from this rank's.
        """
        return float(self.tokens_read) * DataRank.of(self.trainer).ranks

    def loss_sum(self, batch: Batch) -> Tensor:
        """Returns a batch's summed loss in trainer.precision, to try or to replay a step."""
        with self.trainer.precision_plugin.train_step_context():
            nats, count, report = summed_loss(self.objective, self.model, batch)
        return nats + report["loss"] * count if "loss" in report else nats

    def micro_batch(self, batch: Batch, micro: int) -> Batch:
        """Returns micro-batch `micro`: one of `accumulate` equal parts of the batch's rows."""
        if self.accumulate == 1:
            return batch
        rows = num_rows(batch) // self.accumulate
        return map_tensors(batch, lambda x: x[micro * rows : (micro + 1) * rows])

    def seed_micro_batch(self, step: int, micro: int) -> None:
        """Seeds dropout by (seed, step, micro-batch, rank among those with different data)."""
        seed = derive_seed("dropout", self._seed, step, micro, self._data_rank.rank)
        seed_generators(seed, self.device)

    def _start_step(self) -> None:
        """Resets the report and sets the learning rates of the step."""
        self.step_state.report = {}
        if self.freezing.changes_at(self.step):
            self.freezing.set_step(self.step)
            self._trainable = [p for p in self.model.parameters() if p.requires_grad]
        lr_factor = self.schedule(self.step)
        for group in self._optimizer.param_groups:
            set_rate(group, group["initial_lr"] * lr_factor)

    def _micro_batch_loss(self, batch: Batch, micro: int) -> Tensor:
        """Returns a micro-batch's loss as a sum over its tokens, and adds it to the step's sums."""
        nats, count, report = summed_loss(self.objective, self.model, batch)
        auxiliary = report.pop("loss", None) if report else None
        sums = torch.stack(
            [
                nats.detach(),
                torch.as_tensor(count, dtype=nats.dtype, device=nats.device),
                nats.new_zeros(()) if auxiliary is None else (auxiliary * count).detach(),
            ]
        )
        state = self.step_state
        state.sums = state.sums + sums if micro else sums.to(self._sum_dtype)
        for name, value in report.items():
            state.report[name] = (
                state.report[name] + value.detach() if name in state.report else value.detach()
            )
        return nats if auxiliary is None else nats + auxiliary * count

    def _sum_over_ranks(self, counts: Tensor) -> Tensor:
        if self._data_rank.ranks > 1:
            all_reduce(counts)
        return counts

    def _reduce_sums(self) -> None:
        """Sums over ranks, in one message: the step's sums, the encoded signals and the report."""
        state = self.step_state
        if self._data_rank.ranks == 1:
            return
        encoded = encode_signal(self.signals.number, self.signals.time_is_up)
        reported = [value.to(self._sum_dtype).flatten() for value in state.report.values()]
        flat = torch.cat([state.sums, state.sums.new_tensor([encoded]), *reported])
        all_reduce(flat)
        state.sums, state.signals, *values = flat.split([3, 1, *map(len, reported)])
        for (name, old), value in zip(state.report.items(), values, strict=True):
            state.report[name] = value.view(old.shape).to(old.dtype)

    def _update_weights(self) -> None:
        """Runs the optimizer's step, unless the loss or the gradient is not finite: then neither
        weights nor optimizer state change.
        """
        skipped = ~torch.isfinite(self.step_state.grad_norm + self.step_state.nats)
        if self._skips_on_device:
            # All steps after the first are skipped too, so that the first one can be replayed
            # when `first_nonfinite` is read.
            if self.stops_at_nonfinite:
                skipped = skipped | (self.first_nonfinite >= 0)
            self._optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
            self._optimizer.step()
        elif not skipped.item():
            self._optimizer.step()
        self.step_state.skipped = skipped if self._skips_on_device or skipped.item() else None

    def _finish_step(self) -> None:
        """Adds the step to the sums of the metrics, and updates what the model counts per step."""
        state, skipped = self.step_state, self.step_state.skipped
        if skipped is None:
            self.metric_sums += state.sums
        else:  # NaN + 0 is NaN: sums of a skipped step are replaced, not multiplied by 0
            self.metric_sums += torch.where(skipped, 0.0, state.sums)
            first = skipped & (self.first_nonfinite < 0)
            self.first_nonfinite = torch.where(first, self.step - 1, self.first_nonfinite)
            self.skipped_steps += skipped
            state.report = {
                name: torch.where(skipped, 0, value) for name, value in state.report.items()
            }
        self.model.after_step(state.report)  # type: ignore[operator]
        self._set_global_step()

    def _set_global_step(self) -> None:
        """Sets trainer.global_step, which manual optimization does not count."""
        progress = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total
        progress.ready = progress.completed = self.step

    def training_metrics(self) -> Metrics:
        """The row of metrics.csv about the steps since its last row, whose sums it resets;
        grad_norm is that of the last step.
        """
        nats, tokens, auxiliary = self.metric_sums.tolist()
        self.metric_sums.zero_()
        row = {
            TRAIN_LOSS: nats / tokens if tokens else math.nan,
            **rates(self._optimizer),
            "grad_norm": float(self.step_state.grad_norm),
        }
        if auxiliary:
            row["train/auxiliary_loss"] = auxiliary / tokens
        if self.step_state.report:
            reported = self.model.figures(self.step_state.report)  # type: ignore[operator]
            row |= {f"train/{name}": value for name, value in reported.items()}
        return row
