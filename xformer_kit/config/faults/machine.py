"""Checks of a config against this machine: devices, loader processes, directories, packages."""

import importlib.util
import os
from typing import Any

from xformer_kit.config.faults.size import memory_faults
from xformer_kit.config.options.logger_options import as_loggers
from xformer_kit.config.options.trainer_schema import shard_ranks_fault
from xformer_kit.kernel import cannot_train_on
from xformer_kit.launcher import has_launcher
from xformer_kit.plan import provenance_of, stacks
from xformer_kit.registry import ConfigError, Fault, Faults, Node
from xformer_kit.text.user_path import user_path

MAX_NAME = 255  # bytes of a file's name
FLOAT8 = "fp8-mixed"  # trainer.precision: products in 8 bits (xformer_kit/model/float8.py)
FLOAT8_LIBRARY = "torchao"
FLOAT8_CAPABILITY = (8, 9)  # of a GPU that has them: Ada, Hopper and later
LOGGER_PACKAGES = {  # any one of them is enough
    "tensorboard": ("tensorboard", "tensorboardX"),
    "mlflow": ("mlflow",),
}


def run_faults(config: Node, here: bool = True) -> Faults:
    """Yields the faults of batches that cannot be split, and of what this machine cannot run, in a
    config that is valid otherwise; here: whether the run takes place on this machine.
    """
    trainer, data = config["trainer"], config["data"]
    if here:
        yield from _device_faults(trainer)
        yield from _float8_faults(trainer)
    yield from _batch_faults(
        trainer, data["batch_size"] if data.get("batch_tokens") is None else None
    )
    if not here:
        return
    if data.get("cache") is not None and why_not_created(data["cache"]):
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
    yield from kernel_device_faults(_available(trainer.get("accelerator", "auto"))[0], config)
    yield from memory_faults(config)
    yield from missing_loggers(config["logger"])


def kernel_device_faults(device: str, config: Node) -> Faults:
    """Yields the faults of kernels that compute no gradients on a kind of device, in a config that
    is valid otherwise.
    """
    faults = []
    for plan in stacks(config):
        for block in plan.variants.values():
            path, name = provenance_of("kernel", block), block.nodes["kernel"]["name"]
            if name != "auto" and (reason := cannot_train_on(name, device)):
                faults.append(Fault(path, reason, name, "Use kernel=auto or kernel=sdpa."))
    yield from dict.fromkeys(faults)


def missing_loggers(node: Any) -> Faults:
    """Yields the fault of each logger of a valid node `logger` whose package is not installed."""
    for name in as_loggers(node):
        packages = LOGGER_PACKAGES.get(name)
        if packages and not any(map(importlib.util.find_spec, packages)):
            yield Fault(
                "logger",
                f"{name} is not installed",
                got=f"logger={name}",
                fix=f"Try pip install {name}, or logger=csv.",
            )


def _available(accelerator: Any) -> tuple[str, int]:
    """Returns (kind, number of devices) of trainer.accelerator on this machine; -1 on a CPU, whose
    number of processes is not limited.
    """
    import torch

    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = int(torch.backends.mps.is_available())
    if accelerator == "auto":
        accelerator = "cuda" if cuda else "cpu"
    if accelerator == "gpu":
        accelerator = "mps" if mps and not cuda else "cuda"
    return accelerator, {"cuda": cuda, "mps": mps}.get(accelerator, -1)


def _float8_faults(trainer: Node) -> Faults:
    """Yields the fault of 8-bit products without such a device, or without their library."""
    import torch

    if trainer.get("precision") != FLOAT8:
        return
    is_cuda = _available(trainer.get("accelerator", "auto"))[0] == "cuda"
    if not is_cuda or torch.cuda.get_device_capability() < FLOAT8_CAPABILITY:
        rule = "needs a GPU with products in 8 bits: compute capability {}.{} or above"
        fix = "Try bf16-mixed, or auto."
        yield Fault("trainer.precision", rule.format(*FLOAT8_CAPABILITY), got=FLOAT8, fix=fix)
    elif importlib.util.find_spec(FLOAT8_LIBRARY) is None:
        rule = f"needs the library {FLOAT8_LIBRARY}, which is not installed"
        fix = "Use pip install 'xformer_kit[optim]'."
        yield Fault("trainer.precision", rule, got=FLOAT8, fix=fix)


def _device_faults(trainer: Node) -> Faults:
    """Yields the fault of an accelerator, or of devices, that this machine does not have."""
    accelerator, devices = trainer.get("accelerator", "auto"), trainer.get("devices", 1)
    kind, available = _available(accelerator)
    if available == 0:
        rule = f"this machine has no {kind} device that torch can use"
        yield Fault("trainer.accelerator", rule, got=accelerator, fix="Try auto or cpu.")
        return
    if isinstance(devices, list) and kind == "cpu":
        fix = f"Give a number of processes, such as {len(devices)}."
        yield Fault("trainer.devices", "a CPU has no indices", got=devices, fix=fix)
        return
    needed = 0
    if isinstance(devices, list):
        needed = max(devices) + 1
    elif str(devices).isdigit():
        needed = int(devices)
    if needed > available > 0:
        rule = f"must be at most {available}, or indices below it: the {kind} devices here"
        yield Fault("trainer.devices", rule, got=devices)


def _batch_faults(trainer: Node, batch_size: int | None) -> Faults:
    """Yields the fault of a global batch that is no multiple of accumulation times devices."""
    if has_launcher():
        return  # the launcher sets the number of processes, and the run checks it
    devices, accumulate = trainer.get("devices", 1), trainer.get("accumulate", "auto")
    if isinstance(devices, list):
        count = len(devices)
    elif str(devices).isdigit():
        count = int(devices)
    else:
        count = max(1, _available(trainer.get("accelerator", "auto"))[1])
    if fault := shard_ranks_fault(trainer, count):
        yield fault.at("trainer")
    if batch_size is not None and count > 0:
        from xformer_kit.data.order import micro_batch_size

        try:
            micro_batch_size(batch_size, 1 if accumulate == "auto" else accumulate, count)
        except ConfigError as error:
            yield from error.faults


def why_not_created(directory: str) -> str | None:
    """Returns why a directory cannot be created or written; None if it can."""
    place = user_path(directory).absolute()
    if any(len(os.fsencode(name)) > MAX_NAME for name in place.parts):
        return f"a name has at most {MAX_NAME} bytes"
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        return f"{place.name} is a file"
    if not os.access(place, os.W_OK) or place.parts[:2] == ("/", "proc"):
        return f"nothing can be written into {place}"
    return None
