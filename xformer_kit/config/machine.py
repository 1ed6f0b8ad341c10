"""Checks of a config against this machine: devices, loader processes, directories, packages."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from xformer_kit.config.size import too_large
from xformer_kit.kernel import cannot_train_on
from xformer_kit.plan import as_node, provenance_of, stacks
from xformer_kit.registry import ConfigError, Fault, Faults, Node


def run_faults(config: Node, here: bool = True) -> Faults:
    """Messages for batches that do not split, and for what this machine cannot do, of a config
    that is valid otherwise.

    `here`: whether the run takes place on this machine.
    """
    trainer, data = config["trainer"], config["data"]
    if here:
        yield from _machine(trainer)
    yield from _split(trainer, data["batch_size"] if data.get("batch_tokens") is None else None)
    if not here:
        return
    if data.get("cache") is not None and not makeable(data["cache"]):
        yield Fault(
            "data.cache",
            "must be a directory that can be made",
            got=f"{data['cache']!r}",
            fix="null is the user's cache.",
        )
    most = 4 * (os.cpu_count() or 1)
    if data["num_workers"] > most:
        yield Fault(
            "data.num_workers",
            f"must be at most 4 per core, {most} here",
            got=data["num_workers"],
            fix="Try 2.",
        )
    yield from untrained_on(_available(trainer.get("accelerator", "auto"))[0], config)
    yield from too_large(config)
    if fault := missing_logger(as_node(config["logger"])["name"]):
        yield fault


def untrained_on(device: str, config: Node) -> Faults:
    """Kernels that compute no gradients on a kind of device, in a config that is valid
    otherwise.
    """
    found: dict[str, Fault] = {}
    for plan in stacks(config):
        for block in plan.variants.values():
            path, name = provenance_of("kernel", block), block.nodes["kernel"]["name"]
            if name != "auto" and (reason := cannot_train_on(name, device)):
                found.setdefault(
                    path, Fault(path, reason, got=name, fix="Use kernel=auto or kernel=sdpa.")
                )
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


def _machine(trainer: Node) -> Faults:
    """The message for an accelerator that is not here, or for more devices than there are."""
    accelerator, devices = trainer.get("accelerator", "auto"), trainer.get("devices", 1)
    kind, there = _available(accelerator)
    if there == 0:
        rule = f"this machine has no {kind} device that torch can use"
        yield Fault("trainer.accelerator", rule, got=accelerator, fix="Try auto or cpu.")
        return
    rule = fix = ""
    if isinstance(devices, list):
        if kind == "cpu":
            rule = "a CPU has no indices"
            fix = f"Give a number of processes, such as {len(devices)}."
        elif max(devices) >= there:
            rule = f"must be indices below {there}, the {kind} devices here"
    elif str(devices).isdigit() and int(devices) > there > 0:
        rule = f"must be at most {there}, the {kind} devices here"
    if rule:
        yield Fault("trainer.devices", rule, got=devices, fix=fix)


def _split(trainer: Node, batch_size: int | None) -> Faults:
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
    if batch_size is not None and count > 0:
        from xformer_kit.data.order import micro_batch_size

        try:
            micro_batch_size(batch_size, 1 if accumulate == "auto" else accumulate, count)
        except ConfigError as error:
            yield from error.faults


def makeable(directory: str) -> bool:
    """Whether a directory can be written to, or can be made."""
    place = Path(directory).expanduser().absolute()
    while not place.exists():
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK) and place.parts[:2] != ("/", "proc")
