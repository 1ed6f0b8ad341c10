"""The hooks of Lightning within a step: called for callbacks, as Lightning calls them in automatic
optimization.
"""

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import LambdaCallback

from tasks.callbacks import user_callbacks
from tasks.checkpoints import checkpoints
from tasks.modules.step_hooks import HOOKS
from xformer_kit.files.saved_files import read_columns

STEPS = ["trainer.max_steps=2", "trainer.val_every=null", "trainer.log_every_n_steps=1"]


class Recorder(Callback):
    """Records the hooks in their order, and what they receive."""

    def __init__(self):
        self.called, self.norms, self.losses = [], [], []

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        self.called.append("on_train_batch_start")

    def on_before_backward(self, trainer, task, loss):
        self.called.append("on_before_backward")
        self.losses.append(float(loss.detach()))

    def on_after_backward(self, trainer, task):
        self.called.append("on_after_backward")
        assert any(p.grad is not None for p in task.parameters())

    def on_before_optimizer_step(self, trainer, task, optimizer):
        self.called.append("on_before_optimizer_step")
        assert optimizer is trainer.optimizers[0]
        gradients = [p.grad for p in task.parameters() if p.grad is not None]
        self.norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    def on_before_zero_grad(self, trainer, task, optimizer):
        self.called.append("on_before_zero_grad")
        assert any(p.grad is not None for p in task.parameters())

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        self.called.append("on_train_batch_end")
        assert all(p.grad is None for p in task.parameters())


@pytest.fixture
def with_callback(begin, monkeypatch):
    """with_callback(callback, *overrides) trains a run with it; returns its directory."""

    def with_callback(callback, *words):
        created = {} if callback is None else {"mine": callback}
        monkeypatch.setattr(user_callbacks, "create_callbacks", lambda *arguments: created)
        code, folder = begin(f"run{len(weights)}", *STEPS, *words)
        assert code == 0
        weights.append(checkpoints.read(folder / "checkpoints" / "last.ckpt").state_dict)
        return folder

    weights = with_callback.weights = []
    return with_callback


def test_hooks_are_called_in_the_order_of_automatic_optimization(with_callback):
    callback = Recorder()
    with_callback(callback, "trainer.accumulate=2")
    step = [
        "on_train_batch_start",
        *["on_before_backward", "on_after_backward"] * 2,
        *("on_before_optimizer_step", "on_before_zero_grad", "on_train_batch_end"),
    ]
    assert callback.called == step * 2
    assert set(HOOKS) < set(step)


@pytest.mark.parametrize("clip", ["null", "0.01"])
def test_gradients_of_the_mean_loss_are_seen_before_clipping(with_callback, clip):
    """Observing them does not change the run."""
    callback, words = Recorder(), ["trainer.accumulate=2", f"trainer.gradient_clip_val={clip}"]
    folder = with_callback(callback, *words)
    columns = read_columns(folder / "metrics.csv")
    assert callback.norms == pytest.approx(columns["grad_norm"][1], rel=1e-5)
    assert min(callback.norms) > 0.01
    tokens = 8 * 16
    mean = [sum(callback.losses[at : at + 2]) / tokens for at in (0, 2)]
    assert mean == pytest.approx(columns["train/loss"][1], rel=1e-5)
    with_callback(None, *words)
    torch.testing.assert_close(*with_callback.weights, rtol=1e-5, atol=1e-7)


def test_hooks_that_are_attributes_are_called(with_callback):
    called = []
    callback = LambdaCallback(on_before_optimizer_step=lambda *arguments: called.append(arguments))
    with_callback(callback)
    assert [optimizer is trainer.optimizers[0] for trainer, _, optimizer in called] == [True, True]


def test_a_callback_can_change_the_gradients(with_callback):
    class Zero(Callback):
        def on_train_start(self, trainer, task):
            self.initial = {name: value.clone() for name, value in task.state_dict().items()}

        def on_before_optimizer_step(self, trainer, task, optimizer):
            for parameter in task.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()

    callback = Zero()
    folder = with_callback(callback, "optim.weight_decay=0")
    assert read_columns(folder / "metrics.csv")["grad_norm"][1] == [0, 0]
    torch.testing.assert_close(with_callback.weights[0], callback.initial, rtol=0, atol=0)


def test_gradients_are_the_same_through_a_scaler_of_fp16(with_callback):
    """The scaler's factor is a power of 2, so that float32 weights are the same."""

    class Scaled(Recorder):
        def setup(self, trainer, task, stage):
            trainer.precision_plugin.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    scaled, plain = Scaled(), Recorder()
    for callback in (scaled, plain):
        with_callback(callback, "trainer.accumulate=2", "trainer.gradient_clip_val=0.5")
    assert scaled.called == plain.called
    assert scaled.norms == plain.norms and scaled.losses == plain.losses
    torch.testing.assert_close(*with_callback.weights, rtol=0, atol=0)
