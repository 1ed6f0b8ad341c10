"""Trains a config for a few steps without a run's directory, for the commands that find the
learning rate and the batch size.

Lightning's Tuner is not used: it changes the learning rate and the batch size through attributes
and a scheduler, which manual optimization does not read, and writes checkpoints into the current
directory.
"""

from typing import Any

from lightning.pytorch import Callback

from tasks import Config
from tasks.modules.data import DataModule
from tasks.modules.evaluation import EvaluatedTask
from tasks.modules.task_class import create_task
from tasks.process import ranks
from tasks.process.command_faults import refuse
from tasks.run import init_from
from tasks.run import trainer as trainers
from xformer_kit.config import compose
from xformer_kit.config.faults.machine import run_faults
from xformer_kit.data import prepare
from xformer_kit.data.preparation.training_data import TrainingData
from xformer_kit.init_source import objective_for
from xformer_kit.registry import config_error


def single_device_config(words: list[str], command: str) -> Config:
    """Returns the config of a line of overrides. Raises ConfigError with its faults, as for
    training, and for several devices.
    """
    config = compose(words, once=True)
    if ranks.has_launcher() or config["trainer"].get("devices", 1) not in (1, "1", "auto"):
        rule = f"must be 1 for xformer {command}, which finds it for one device"
        got = config["trainer"].get("devices")
        raise config_error("trainer.devices", rule, got, "Try trainer.devices=1.")
    refuse(run_faults(config))
    return config


def fit(config: Config, steps: int, callback: Callback) -> EvaluatedTask:
    """Trains for `steps` optimizer steps on one device, without validation, logs and checkpoints;
    returns the task. A callback may end it with trainer.should_stop.
    """
    trainer_options = {
        **config["trainer"],
        "devices": 1,
        "max_steps": steps,
        "max_tokens": None,
        "max_epochs": None,
        "val_every": None,
        "on_nonfinite": "skip",
        "profile": 0,
    }
    config = {**config, "trainer": trainer_options, "callbacks": {}}
    trainers.silence_lightning()
    prepared = prepare(config)
    objective = objective_for(config, prepared)
    data = TrainingData(config, prepared, objective)
    task = create_task(config, objective, data, total_steps=steps)
    if (config.get("init_from") or {}).get("run"):
        init_from.start_from(config, task, objective)
    trainers.convert(task.model, config["trainer"])
    trainer: Any = trainers.make_trainer(config, [callback], None, steps)
    trainers.disable_signal_handling(trainer)
    trainer.fit(task, datamodule=DataModule(data))
    return task
