"""The Lightning module of a training step: micro-batches contribute sums, which are divided by the
tokens of all of them before one update.

Lightning's loop passes all micro-batches of an optimizer step at once, so the step is written here
in full, and Lightning's bookkeeping runs once per step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.distributed import all_reduce
from torch.optim import Optimizer

from tasks import Config, Figures, State
from tasks.run.auto_accumulate import fewest
from tasks.run.exit_codes import SignalBox, ballot
from tasks.run.seeds import key, set_generators
from xformer_kit.data.batch import Batch, mapped, rows_of
from xformer_kit.optim import OPTIMIZERS
from xformer_kit.optim.schedules import SCHEDULES


@dataclass(slots=True)
class StepState:
    """State of the current or the last step. Not on the module: setting an attribute of one is
    slow.
    """

    # Over micro-batches and ranks: [nats, tokens, auxiliary loss, ballots of signals].
    sums: Tensor = field(default_factory=lambda: torch.zeros(4))
    # Figures of the model's components, summed in the same way.
    report: dict[str, Tensor] = field(default_factory=dict)
    # Of the gradient of the mean loss, before clipping.
    norm: Tensor = field(default_factory=lambda: torch.zeros(()))
    # whether all of the last step is done, and nothing of the next: what there is can be saved
    settled: bool = True
    bad: Tensor | None = None  # whether the step is not finite and was left out


class Task(pl.LightningModule):
    """A model, its objective and its optimizer, configured by plain dicts."""

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
        self.objective = objective
        self.total_steps = total_steps
        self.signals = signals or SignalBox()
        self.now = StepState()
        self.step = 0  # optimizer steps done
        self.began = 0  # steps that were done when this process took over
        # tokens that this process has read, without padding; a tensor if they are on the device
        self.read: Any = 0
        self.accumulate = 1
        # On the device: the first step that was left out, -1 while there is none.
        self.nonfinite = torch.tensor(-1)
        self.left_out = torch.tensor(0)  # on the device: how many were
        self.stops_at_nonfinite = config["trainer"].get("on_nonfinite", "stop") == "stop"
        self.saved: State = {}  # the checkpoint to resume from
        # Called before clipping, with the factor that makes gradients those of the mean loss.
        self.gradient_hooks: list[Callable[[Tensor], None]] = []
        self.schedule = SCHEDULES.create(config["schedule"], max_steps=total_steps)

    def configure_optimizers(self) -> Optimizer:
        # The scaler must see plain gradients.
        scaled = self.config["trainer"].get("precision") == "16-mixed"
        optimizer = OPTIMIZERS.create(
            self.config["optim"], model=self.model, fused=False if scaled else None
        )
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        return optimizer

    # A checkpoint holds the model's own names, whatever wraps it.
    def state_dict(self, *args: Any, **kwargs: Any) -> State:  # type: ignore[override]
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        return self.model.load_state_dict(state, strict=strict, assign=assign)

    def restore(self, state: State) -> None:
        """Continue from a checkpoint; the optimizer's state is loaded once the trainer has one."""
        self.load_state_dict(state["state_dict"])
        self.step = state["global_step"]
        self.left_out = torch.tensor(state["left_out"])
        self.accumulate = state["accumulate"]
        self.saved = state

    def rewind(self, step: int) -> None:
        """Count only the steps before one that was not finite; no weight has changed since."""
        self.step = step
        self.left_out = torch.zeros_like(self.left_out)

    def on_fit_start(self) -> None:
        trainer = self.trainer
        self._optimizer: Optimizer = trainer.optimizers[0]
        self._parameters_ = [p for p in self.model.parameters() if p.requires_grad]
        self._scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._gates = (
            bool(getattr(self._optimizer, "_step_supports_amp_scaling", False))
            and self.device.type != "cpu"
        )
        self._sums = torch.float32 if self.device.type == "mps" else torch.float64
        # Sums since the last row of metrics.csv.
        self.window = torch.zeros(4, dtype=self._sums, device=self.device)
        self.nonfinite = self.nonfinite.to(self.device)
        self.left_out = self.left_out.to(self.device)
        self._world = trainer.world_size
        self._seed = self.config["seed"]
        self.began = self.step
        if self.saved:
            self._restore_optimizer(self.saved)
        self.accumulate = self._micro_batches()  # after the optimizer's state is there, if it is
        self.signals.patient = True  # from here there is a step to finish
        self._count_steps()
        # From which Lightning counts to a validation.
        trainer.fit_loop.epoch_loop.batch_progress.total.ready = self.step

    def _restore_optimizer(self, state: State) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        self.window += state["window"].to(self.device)
        if self._scaler is not None and "scaler" in state:
            self._scaler.load_state_dict(state["scaler"])
        self.saved = {}

    def _micro_batches(self) -> int:
        """trainer.accumulate; for auto the value in the checkpoint, or the fewest that fit into the
        device's memory.
        """
        wanted = self.config["trainer"].get("accumulate", "auto")
        if isinstance(wanted, int):
            return wanted
        if self.step or self.device.type != "cuda":
            return self.accumulate
        return fewest(self.model, self.objective, self.config, self.trainer, self.device)

    def training_step(self, batch: Batch, index: int) -> None:
        """One optimizer step on this rank's examples of it."""
        self._begin()
        batch = self.objective.whole(self.model, batch, self._total)
        for micro in range(self.accumulate):
            self.seed_micro_batch(self.step, micro)
            loss = self._micro_batch(self.part(batch, micro), micro)
            if micro == self.accumulate - 1:
                self.trainer.strategy.pre_backward(loss)  # from here ranks exchange gradients
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        self._reduce()
        self.now.settled = False
        if self._scaler is None:
            self.on_before_optimizer_step(self._optimizer)
            self._update()
        # fp16: Lightning unscales, calls on_before_optimizer_step, and lets the scaler leave bad
        # steps out
        else:
            self.trainer.strategy.optimizer_step(self._optimizer, lambda: None, model=self)
            self._optimizer.zero_grad()
        self.step += 1
        self.read = self.read + self.objective.size(batch)
        self._after()

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.now.settled = True  # the callbacks, which Lightning calls first, have seen the step

    def tokens_per_step(self) -> float:
        """Tokens of a step over all ranks, on average since this process began; 0 before its first
        step.
        """
        return float(self.read) * self.trainer.world_size / max(1, self.step - self.began)

    def part(self, batch: Batch, micro: int) -> Batch:
        """A micro-batch: one of `accumulate` equal parts of the rows."""
        if self.accumulate == 1:
            return batch
        rows = rows_of(batch) // self.accumulate
        return mapped(batch, lambda x: x[micro * rows : (micro + 1) * rows])

    def seed_micro_batch(self, step: int, micro: int) -> None:
        set_generators(key("dropout", self._seed, step, micro, self.global_rank), self.device)

    def _begin(self) -> None:
        self.now.report = {}
        rate = self.schedule(self.step)
        for group in self._optimizer.param_groups:
            group["lr"] = group["initial_lr"] * rate

    def _micro_batch(self, batch: Batch, micro: int) -> Tensor:
        """The loss of a micro-batch as a sum over its tokens, so that the division by all tokens
        gives means.
        """
        nats, count, report = self.objective.loss(self.model, batch)
        auxiliary = report.pop("loss", None) if report else None
        zero = nats.new_zeros(())
        own = torch.stack(
            [
                nats.detach(),
                torch.as_tensor(count, dtype=nats.dtype, device=nats.device),
                zero if auxiliary is None else (auxiliary * count).detach(),
                zero,
            ]
        )
        now = self.now
        now.sums = now.sums + own if micro else own.to(self._sums)
        for name, value in report.items():
            now.report[name] = (
                now.report[name] + value.detach() if name in now.report else value.detach()
            )
        return nats if auxiliary is None else nats + auxiliary * count

    def _total(self, counts: Tensor) -> Tensor:
        """The sum over ranks."""
        if self._world > 1:
            all_reduce(counts)
        return counts

    def _reduce(self) -> None:
        """Sum over ranks: the step's sums, who got a signal, and the report, in one message."""
        now = self.now
        if self._world == 1:
            return
        now.sums[3] = ballot(self.signals.number, self.signals.late)
        flat = torch.cat([now.sums, *(v.to(self._sums).flatten() for v in now.report.values())])
        all_reduce(flat)
        now.sums, *values = flat.split([4, *(v.numel() for v in now.report.values())])
        for (name, old), value in zip(now.report.items(), values, strict=True):
            now.report[name] = value.view(old.shape).to(old.dtype)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Divide gradients by the step's tokens, and clip them: one pass over them does both.

        The gradient of the mean loss is sum / tokens. Ranks exchanged the mean of their sums, hence
        the factor `world`.
        """
        gradients = [p.grad for p in self._parameters_ if p.grad is not None]
        clip = self.config["trainer"].get("gradient_clip_val")
        norm = torch.nn.utils.get_total_norm(gradients)
        scale = self._world / self.now.sums[1]
        self.now.norm = norm * scale
        for hook in self.gradient_hooks:
            hook(scale)
        by_norm = self.config["trainer"].get("gradient_clip_algorithm", "norm") == "norm"
        if clip is not None and by_norm:
            scale = scale * (clip / (self.now.norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, scale.to(gradients[0].dtype))
        if clip is not None and not by_norm:
            torch._foreach_clamp_min_(gradients, -clip)
            torch._foreach_clamp_max_(gradients, clip)

    def _update(self) -> None:
        """The optimizer's step, gated on the device: one that is not finite changes neither weights
        nor state.
        """
        bad = ~torch.isfinite(self.now.norm + self.now.sums[0])
        if self._gates:
            # Nothing moves after the first: it can be replayed when the flag is read.
            if self.stops_at_nonfinite:
                bad = bad | (self.nonfinite >= 0)
            self._optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
            self._optimizer.step()
        elif not bad.item():
            self._optimizer.step()
        self.now.bad = bad if self._gates or bad.item() else None
        self._optimizer.zero_grad()

    def _after(self) -> None:
        now, bad = self.now, self.now.bad
        if bad is None:
            self.window += now.sums
        else:  # NaN + 0 is NaN, so the sums of a bad step are replaced, not multiplied
            self.window += torch.where(bad, 0.0, now.sums)
            self.nonfinite = torch.where(bad & (self.nonfinite < 0), self.step - 1, self.nonfinite)
            self.left_out += bad
            now.report = {name: torch.where(bad, 0, value) for name, value in now.report.items()}
        self.model.after_step(now.report)  # type: ignore[operator]
        self._count_steps()

    def _count_steps(self) -> None:
        progress = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total
        progress.ready = progress.completed = self.step  # what trainer.global_step reads

    def train_row(self) -> Figures:
        """The row of metrics.csv on the steps since its last row; the gradient's norm is that of
        the last step.
        """
        nats, tokens, auxiliary, _ = self.window.tolist()
        self.window.zero_()
        row = {
            "train/loss": nats / tokens if tokens else math.nan,
            "lr": self._optimizer.param_groups[0]["lr"],
            "grad_norm": float(self.now.norm),
        }
        if auxiliary:
            row["train/auxiliary_loss"] = auxiliary / tokens
        if self.now.report:
            said = self.model.figures(self.now.report)  # type: ignore[operator]
            row |= {f"train/{name}": value for name, value in said.items()}
        return row
