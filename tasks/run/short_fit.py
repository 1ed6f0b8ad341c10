"""Trains a config for a few steps without a run's directory, for the commands that find the
learning rate and the batch size.

Lightning's Tuner is not used: it changes the learning rate and the batch size through attributes
and a scheduler, which manual optimization does not read, and writes checkpoints into the current
directory.
"""

from collections.abc import Iterable
from typing import Any

from lightning.pytorch import Callback

from tasks import Config
from tasks.modules.data import DataModule
from tasks.modules.evaluation import EvaluatedTask
from tasks.modules.task_class import task_class
from tasks.process import ranks
from tasks.process.command_faults import refuse
from tasks.run import init_from
from tasks.run import trainer as trainers
from xformer_kit.api import build_checked
from xformer_kit.config import compose
from xformer_kit.config.faults.machine import run_faults
from xformer_kit.data import prepare
from xformer_kit.data.preparation.training_data import TrainingData, set_tokenizers
from xformer_kit.model.compiling import compile_blocks
from xformer_kit.objective import objective_of
from xformer_kit.registry import Fault, Faults, config_error


def single_device_config(words: list[str], command: str) -> Config:
    """Returns the config of a line of overrides. Raises ConfigError with its faults, as for
    training, and for what has no use here: several devices, and options of a run's directory.
    """
    refuse(_unused(words, command))
    config = compose(words, once=True)
    if ranks.has_launcher() or config["trainer"].get("devices", 1) not in (1, "1", "auto"):
        rule = f"must be 1 for xformer {command}, which finds it for one device"
        got = config["trainer"].get("devices")
        raise config_error("trainer.devices", rule, got, "Try trainer.devices=1.")
    refuse(run_faults(config))
    return config


def _unused(words: Iterable[str], command: str) -> Faults:
    """Yields the faults of overrides that only a run or a study has."""
    for word in words:
        key = word.lstrip("+~").partition("=")[0]
        if key.partition(".")[0] in ("hydra", "study"):
            rule = f"is of a run or a study, which xformer {command} does not start"
            yield Fault(key, rule, got=word, fix="Leave it out.")


def fit(config: Config, steps: int, callback: Callback) -> EvaluatedTask:
    """Trains for `steps` optimizer steps on one device, without validation, logs and checkpoints;
    returns the task. A callback may end it with trainer.should_stop.
    """
    trainer_options = {
        **config["trainer"],
        "devices": 1,
        "max_steps": steps,
        "max_epochs": None,
        "val_every": None,
        "on_nonfinite": "skip",
        "profile": 0,
    }
    config = {**config, "trainer": trainer_options, "callbacks": {}}
    trainers.silence_lightning()
    prepared = prepare(config)
    objective = set_tokenizers(objective_of(config), prepared)
    data = TrainingData(config, prepared, objective)
    vocab_size = config["model"].get("vocab_size") or prepared.tokenizer.size
    source = objective.source_tokenizer
    model = build_checked(
        config, vocab_size, None if source is objective.tokenizer else source.size
    )
    task = task_class(config)(config, model, objective, total_steps=steps, data=data)
    if (config.get("init_from") or {}).get("run"):
        init_from.start_from(config, model, objective)
    if trainers.compiles_blocks(config["trainer"]):
        compile_blocks(model)
    trainer: Any = trainers.make_trainer(config, [callback], None, steps)
    trainers.disable_signal_handling(trainer)
    trainer.fit(task, datamodule=DataModule(data))
    return task
