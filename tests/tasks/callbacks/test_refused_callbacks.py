"""Callbacks that a run cannot use."""

import pytest
from lightning.pytorch import callbacks

from tasks.callbacks import user_callbacks
from xformer_kit.config.options.callbacks import CALLBACKS
from xformer_kit.registry import ConfigError


@pytest.mark.parametrize(
    ("create", "option"),
    [
        (callbacks.ModelCheckpoint, "checkpoints.keep_best"),
        (lambda: callbacks.OnExceptionCheckpoint("x"), "checkpoints.keep_best"),
        (lambda: callbacks.StochasticWeightAveraging(0.1), "checkpoints.average"),
        (callbacks.EMAWeightAveraging, "ema.decay"),
        (callbacks.BackboneFinetuning, "model.unfreeze_at"),
        (lambda: callbacks.GradientAccumulationScheduler({0: 2}), "trainer.accumulate"),
        (lambda: callbacks.ModelPruning("l1_unstructured"), "xformer_kit.load(RUN)"),
        (callbacks.BatchSizeFinder, "trainer.accumulate"),
        (callbacks.LearningRateFinder, "optim.lr"),
        (callbacks.TQDMProgressBar, "trainer.enable_progress_bar"),
        (callbacks.RichProgressBar, "trainer.enable_progress_bar"),
    ],
)
def test_a_callback_that_an_option_replaces_is_refused(monkeypatch, tmp_path, create, option):
    monkeypatch.setattr(CALLBACKS, "create", lambda node, run_dir: create())
    with pytest.raises(ConfigError) as error:
        user_callbacks.create_callbacks({"callbacks": {"mine": {}}}, tmp_path, {})
    (message,) = error.value.messages
    assert message.startswith("callbacks.mine: ") and option in message


def test_an_option_that_lightning_refuses_is_a_fault_of_the_config(monkeypatch, tmp_path):
    monkeypatch.setattr(CALLBACKS, "create", lambda node, run_dir: callbacks.Timer("abc"))
    with pytest.raises(ConfigError) as error:
        user_callbacks.create_callbacks({"callbacks": {"mine": {}}}, tmp_path, {})
    assert error.value.messages[0].startswith("callbacks.mine: `Timer(duration='abc')` is not a")


@pytest.mark.parametrize("hook", ["on_save_checkpoint", "on_load_checkpoint"])
def test_a_hook_that_would_lose_a_state_is_refused(monkeypatch, tmp_path, hook):
    create = type("Mine", (callbacks.Callback,), {hook: lambda self, *arguments: None})
    monkeypatch.setattr(CALLBACKS, "create", lambda node, run_dir: create())
    with pytest.raises(ConfigError) as error:
        user_callbacks.create_callbacks({"callbacks": {"mine": {}}}, tmp_path, {})
    (message,) = error.value.messages
    assert message == (
        f"callbacks.mine: must not define {hook}, which a run does not call; got Mine. Define"
        " state_dict and load_state_dict."
    )
