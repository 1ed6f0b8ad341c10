"""Lightning's Trainer for a config, without the bookkeeping that a run does itself."""

import logging
import os
import warnings
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy

from tasks import Config
from xformer_kit.config.trainer_schema import OURS
from xformer_kit.registry import config_error

NEVER = 2**62  # steps: Lightning validates only because the run stops
# What a run does itself: it clips in one pass with the division, counts steps, goes round batches,
# and draws its bar.
OWN = {
    *OURS,
    "max_steps",
    "max_epochs",
    "max_time",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "limit_train_batches",
    "overfit_batches",
    "log_every_n_steps",
    "enable_progress_bar",
    "enable_checkpointing",
}


def quiet() -> None:
    """Silence Lightning's tips, lists of devices and advice on loaders."""
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
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # The profiler's own marks go to the screen below it.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def make(
    config: Config,
    callbacks: Sequence[Any],
    logger: Any,
    total: int,
    world: tuple[int, int] | None,
) -> pl.Trainer:
    """world: (ranks on this machine, machines) that a launcher started, or None for a single
    process.
    """
    node = config["trainer"]
    passed = {key: value for key, value in node.items() if key not in OWN and value is not None}
    val_every = node.get("val_every")
    if world is not None:
        passed |= {"num_nodes": world[1]}
        if not isinstance(node.get("devices"), list):
            passed["devices"] = world[0]
    passed |= {
        "accelerator": accelerator(node),
        "precision": precision(node),
        "strategy": _strategy(node, world),
        "max_epochs": 1,  # one pass over a loader that holds the steps that are left
        "max_steps": -1,
        "val_check_interval": val_every if val_every and val_every < total else NEVER,
        "check_val_every_n_epoch": None,
        "callbacks": list(callbacks),
        "logger": logger or False,
        "log_every_n_steps": NEVER,  # ours are written by Recorder
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_autolog_hparams": False,
        "use_distributed_sampler": False,
    }
    passed = {"num_sanity_val_steps": 0, "enable_model_summary": False} | passed
    try:
        return pl.Trainer(**passed)
    except (pl.utilities.exceptions.MisconfigurationException, ValueError, RuntimeError) as error:
        raise config_error("trainer", " ".join(str(error).split())) from error


def accelerator(node: Config) -> str:
    return _chosen(node, "accelerator", "cuda" if torch.cuda.is_available() else "cpu")


def precision(node: Config) -> str:
    return _chosen(node, "precision", "bf16-mixed" if _on_gpu(node) else "32-true")


def compiles(node: Config) -> bool:
    return bool(_chosen(node, "compile", _on_gpu(node)))


def _on_gpu(node: Config) -> bool:
    return accelerator(node) in ("cuda", "gpu")


def _chosen(node: Config, key: str, usual: Any) -> Any:
    """An option of the trainer, or what auto stands for."""
    wanted = node.get(key, "auto")
    return usual if wanted == "auto" else wanted


def _strategy(node: Config, world: tuple[int, int] | None) -> Any:
    wanted = node.get("strategy", "auto")
    several = world is not None and world[0] * world[1] > 1
    if wanted == "ddp" or (wanted == "auto" and several):
        return DDPStrategy(broadcast_buffers=False)  # after_step gives every rank the same buffers
    return wanted


def lean(trainer: pl.Trainer) -> None:
    """Disable Lightning's handling of signals: it ends with exit code 0 and no checkpoint, and for
    SIGTERM its ranks broadcast and wait before every step.

    SignalBox replaces it; ranks exchange signals with the step's sums (Task._reduce_sums).
    """
    loop, signals = trainer.fit_loop.epoch_loop, trainer._signal_connector
    signals.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    if hasattr(loop, "_broadcast_sigterm_tensor"):
        loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
