"""Lightning's Trainer for a config, without the features of Lightning that a run replaces."""

import logging
import os
import warnings
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins.precision import DoublePrecision
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

from tasks import Config
from tasks.process import ranks
from xformer_kit.config.faults.machine import FLOAT8
from xformer_kit.config.options.trainer_schema import OURS, SHARDED, shard_ranks_fault
from xformer_kit.model.compiling import compile_blocks
from xformer_kit.model.float8 import use_float8
from xformer_kit.registry import ConfigError, config_error

NEVER = 2**62  # an interval in steps that is never reached
# Options of the config that are not passed to Lightning. A run clips gradients in the pass that
# divides them, counts steps, repeats batches, writes logs and checkpoints, and shows its bar.
NOT_PASSED = {
    *OURS,
    "max_steps",
    "max_epochs",
    "max_time",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "limit_train_batches",
    "overfit_batches",
    "enable_progress_bar",
    "enable_checkpointing",
}


def silence_lightning() -> None:
    """Disables Lightning's tips, lists of devices and advice on loaders, and notes of torch."""
    for name in (
        "lightning",
        "lightning.pytorch",
        "lightning.fabric",
        "lightning.pytorch.utilities.rank_zero",
    ):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning(\.|$)")
    warnings.filterwarnings(
        "ignore", message=r".*(num_workers|litlogger|isinstance\(treespec|pynvml).*"
    )
    # Of short batches and samples, which run uncompiled, and of a choice of the compiler.
    warnings.filterwarnings(
        "ignore", message=r"\s*(flex_attention called|Mismatch dtype between|Online softmax)"
    )
    # Of fully_shard, on outputs that are views: none is changed in place.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # Otherwise the profiler prints its marks.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def make_trainer(
    config: Config,
    callbacks: list[Any],
    logger: Any,
    total_steps: int,
) -> pl.Trainer:
    """Returns the Trainer of this process, one of the ranks that a launcher started. Raises
    ConfigError if Lightning does not accept the config.
    """
    options = config["trainer"]
    val_every, world = options.get("val_every"), ranks.world()
    arguments: Config = {"num_sanity_val_steps": 0, "enable_model_summary": False}
    arguments |= {
        key: value for key, value in options.items() if key not in NOT_PASSED and value is not None
    }
    if world is not None:
        local_ranks, arguments["num_nodes"] = world
        if not isinstance(options.get("devices"), list):
            arguments["devices"] = local_ranks
    arguments |= {
        "accelerator": _accelerator(options),
        "precision": _lightning_precision(options),
        "strategy": _strategy(options, ranks.count()),
        "max_epochs": 1,  # the loader has the remaining steps of the run
        "max_steps": -1,
        "val_check_interval": val_every if val_every and val_every < total_steps else NEVER,
        "check_val_every_n_epoch": None,
        "logger": logger or DummyLogger(),  # callbacks may need one, on all ranks
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_autolog_hparams": False,
        "use_distributed_sampler": False,
    }
    if options.get("strategy") in SHARDED:
        arguments["inference_mode"] = False  # its tensors cannot be gathered for training
        if arguments["precision"] == "64-true":  # Lightning's strategy has no name for it
            del arguments["precision"]
            arguments["plugins"] = [DoublePrecision()]
    try:
        trainer = pl.Trainer(**arguments)
    except (pl.utilities.exceptions.MisconfigurationException, ValueError, RuntimeError) as error:
        raise config_error("trainer", " ".join(str(error).split())) from error
    # Lightning's constructor refuses two callbacks of one class that have a state, since its own
    # checkpoints name states by class.
    trainer.callbacks[:0] = callbacks  # type: ignore[attr-defined]
    return trainer


def convert(model: nn.Module, options: Config) -> None:
    """Replaces linear maps by those of trainer.precision=fp8-mixed, and compiles the blocks, if the
    config has them. Called after all modules, such as adapters, have been added.
    """
    if options.get("precision") == FLOAT8:
        use_float8(model)
    if compiles_blocks(options):
        compile_blocks(model)


def compiles_blocks(options: Config) -> bool:
    """Whether the model's blocks are compiled: trainer.compile; auto: on a GPU."""
    return bool(_option(options, "compile", _on_gpu(options)))


def disable_signal_handling(trainer: pl.Trainer) -> None:
    """Disables Lightning's handling of signals, which SignalBox replaces: Lightning ends with exit
    code 0 and no checkpoint, and for SIGTERM its ranks broadcast and wait before every step.

    Ranks exchange signals with the sums of the step (Task._reduce_sums).
    """
    loop, signals = trainer.fit_loop.epoch_loop, trainer._signal_connector
    signals.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    if hasattr(loop, "_broadcast_sigterm_tensor"):
        loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]


def _option(options: Config, key: str, auto: Any) -> Any:
    """An option of the trainer; `auto` if it is "auto" or missing."""
    value = options.get(key, "auto")
    return auto if value == "auto" else value


def _lightning_precision(options: Config) -> str:
    """trainer.precision as Lightning names it."""
    precision = _option(options, "precision", "bf16-mixed" if _on_gpu(options) else "32-true")
    return "bf16-mixed" if precision == FLOAT8 else precision


def _accelerator(options: Config) -> str:
    """trainer.accelerator; auto: cuda if there is a GPU, otherwise cpu."""
    return _option(options, "accelerator", "cuda" if torch.cuda.is_available() else "cpu")


def _on_gpu(options: Config) -> bool:
    return _accelerator(options) in ("cuda", "gpu")


def _strategy(options: Config, rank_count: int) -> Any:
    """trainer.strategy; auto: ddp if there are several ranks."""
    strategy = _option(options, "strategy", "ddp" if rank_count > 1 else "auto")
    if strategy in SHARDED:
        from tasks.process.sharded_strategy import ShardedStrategy

        if fault := shard_ranks_fault(options, rank_count):
            raise ConfigError([fault.at("trainer")])
        return ShardedStrategy(rank_count, options)
    # The model's after_step updates buffers equally on all ranks.
    return DDPStrategy(broadcast_buffers=False) if strategy == "ddp" else strategy
