"""Checks of a config against this machine: devices, loader processes, directories, packages."""

import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xformer_kit.config.size import too_large
from xformer_kit.kernel import untrained
from xformer_kit.plan import provenance_of, stacks
from xformer_kit.registry import ConfigError, Fault


def run_faults(config: Mapping[str, Any], here: bool = True) -> Iterator[Fault]:
    """Messages for batches that do not split, and for what this machine cannot do, of a config
    whose nodes have the right types.

    `here`: whether the run takes place on this machine.
    """
    trainer, data, logger = (config.get(key) for key in ("trainer", "data", "logger"))
    if isinstance(trainer, Mapping):
        if here:
            yield from _machine(trainer)
        if isinstance(data, Mapping):
            yield from _split(
                trainer, data.get("batch_size") if data.get("batch_tokens") is None else None
            )
    if isinstance(data, Mapping):
        if here and isinstance(data.get("cache"), str) and not makeable(data["cache"]):
            yield Fault(
                "data.cache",
                "must be a directory that can be made",
                got=f"{data['cache']!r}",
                fix="null is the user's cache.",
            )
        workers, most = data.get("num_workers"), 4 * (os.cpu_count() or 1)
        if here and isinstance(workers, int) and workers > most:
            yield Fault(
                "data.num_workers",
                f"must be at most 4 per core, {most} here",
                got=f"{workers}",
                fix="Try 2.",
            )
    if here:
        if isinstance(trainer, Mapping):
            yield from untrained_on(_available(trainer.get("accelerator", "auto"))[0], config)
        yield from too_large(config)
    name = logger.get("name") if isinstance(logger, Mapping) else logger
    if here and (fault := missing_logger(name)):
        yield fault


def untrained_on(device: str, config: Mapping[str, Any]) -> Iterator[Fault]:
    """Kernels that compute no gradients on a kind of device, in a config that is valid
    otherwise.
    """
    found: dict[str, Fault] = {}
    for plan in stacks(config) if "model" in config else ():
        for block in plan.variants.values():
            path, name = provenance_of("kernel", block), block.nodes["kernel"]["name"]
            if name != "auto" and (reason := untrained(name, device)):
                fix = "Use kernel=auto or kernel=sdpa."
                found.setdefault(path, Fault(path, reason, got=name, fix=fix))
    yield from found.values()


def missing_logger(name: Any) -> Fault | None:
    """The fault of a logger whose package is not installed."""
    if name != "tensorboard" or any(map(importlib.util.find_spec, ("tensorboard", "tensorboardX"))):
        return None
    return Fault(
        "logger",
        "tensorboard is not installed",
        got="logger=tensorboard",
        fix="Try pip install tensorboard, or logger=csv.",
    )


def _available(accelerator: Any) -> tuple[str, int]:
    """(kind, number of devices) of trainer.accelerator on this machine; -1 on a CPU, whose
    processes are not limited.
    """
    import torch

    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = int(torch.backends.mps.is_available())
    if accelerator == "auto":
        accelerator = "cuda" if cuda else "cpu"
    if accelerator == "gpu":
        accelerator = "mps" if mps and not cuda else "cuda"
    return accelerator, {"cuda": cuda, "mps": mps}.get(accelerator, -1)


def _machine(trainer: Mapping[str, Any]) -> Iterator[Fault]:
    """The message for an accelerator that is not here, or for more devices than there are."""
    accelerator, devices = trainer.get("accelerator", "auto"), trainer.get("devices", 1)
    kind, there = _available(accelerator)
    if there == 0:
        yield Fault(
            "trainer.accelerator",
            f"this machine has no {kind} device that torch can use",
            got=f"{accelerator}",
            fix="Try auto or cpu.",
        )
    elif isinstance(devices, list):
        if kind == "cpu":
            yield Fault(
                "trainer.devices",
                "a CPU has no indices",
                got=f"{devices}",
                fix=f"Give a number of processes, such as {len(devices)}.",
            )
        elif any(isinstance(index, int) and index >= there > 0 for index in devices):
            yield Fault(
                "trainer.devices",
                f"must be indices below {there}, the {kind} devices here",
                got=f"{devices}",
            )
    elif str(devices).isdigit() and int(devices) > there > 0:
        yield Fault(
            "trainer.devices", f"must be at most {there}, the {kind} devices here", got=f"{devices}"
        )


def _split(trainer: Mapping[str, Any], batch_size: Any) -> Iterator[Fault]:
    """The message for a global batch that is no multiple of accumulation times devices."""
    if "TORCHELASTIC_RUN_ID" in os.environ or "SLURM_PROCID" in os.environ:
        return  # the launcher sets the number of processes, and the run checks it
    devices, accumulate = trainer.get("devices", 1), trainer.get("accumulate", "auto")
    if isinstance(devices, list):
        count = len(devices)
    elif str(devices).isdigit():
        count = int(devices)
    else:
        count = max(1, _available(trainer.get("accelerator", "auto"))[1])
    parts = accumulate if isinstance(accumulate, int) else 1
    if isinstance(batch_size, int) and batch_size > 0 and parts > 0 and count > 0:
        from xformer_kit.data.order import micro_size

        try:
            micro_size(batch_size, parts, count)
        except ConfigError as error:
            yield from error.faults


def makeable(directory: str) -> bool:
    """Whether a directory can be written to, or can be made."""
    place = Path(directory).expanduser().absolute()
    while not place.exists():
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK) and place.parts[:2] != ("/", "proc")
