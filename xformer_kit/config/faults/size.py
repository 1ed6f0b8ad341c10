"""Checks of a model's size: whether the machine can hold it, before anything is written."""

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from xformer_kit.config.options.trainer_schema import SHARDED
from xformer_kit.launcher import launched
from xformer_kit.plan import depths
from xformer_kit.registry import ConfigError, Fault, Faults, Node, config_error

# The memory is computed only if an option of a component is above this, or the layers are many.
LARGE_OPTION = 10_000
MANY_LAYERS = 100
VALUE_BYTES = 4  # of a value in fp32
BYTES = 16  # of a parameter in training: weight, gradient, and two averages of AdamW, in fp32
PRECISION_FACTORS = {
    "bf16-true": 0.5,
    "16-true": 0.5,
    "64-true": 2.0,
}  # trainer.precision -> factor
# A size above this is longer than the text of any published model, and wider than any layer.
MAX_SIZE = 10**8
MAX_PARAMETERS = 10**15  # parameters of a model that is described without its memory
NO_SIZES = ("seed", "theta")  # numbers that set no size
COMPONENTS = ("model", "attn", "ffn", "position", "norm", "placement", "extra")


def memory_faults(config: Node, training: bool = True) -> Faults:
    """Yields the fault of a model whose training does not fit into the memory of its device;
    without `training`, of one whose weights do not fit into the memory of this machine.
    """
    if not _may_be_large(config):
        return
    trainer = config["trainer"] if training else {"accelerator": "cpu"}
    memory, device = _memory(trainer)
    factor = PRECISION_FACTORS.get(trainer.get("precision"), 1)
    parameter_bytes = BYTES * factor if training else VALUE_BYTES
    model = _on_meta(config)
    needed = math.inf
    if model is not None:
        buffers = sum(buffer.numel() for buffer in model.buffers())
        needed = parameter_bytes * _count(model) / _parts(trainer) + VALUE_BYTES * buffers
    if needed <= memory:
        return
    known = math.isfinite(needed)
    amount = f"about {needed / 2**30:,.0f} GiB" if known else "more GiB than can be counted"
    content = "weights, gradients and optimizer state" if training else "weights"
    yield Fault(
        "model",
        f"its {content} need {amount}, and {device} has {memory / 2**30:,.0f} GiB",
        got=_largest(config),
        fix="Try smaller sizes.",
    )


def ensure_countable(config: Node) -> None:
    """Raises ConfigError if a size of the model or the data is above MAX_SIZE, or the model has
    more than MAX_PARAMETERS. Called before a model is built on the meta device.
    """
    data = {key: config["data"].get(key) for key in ("seq_len", "batch_size", "batch_tokens")}
    sizes = [*_sizes(config), *_sizes(data, "data")]
    if faults := [
        Fault(path, f"must be at most {MAX_SIZE:,}, or no machine holds the model", size)
        for path, size in sizes
        if size > MAX_SIZE
    ]:
        raise ConfigError(faults)
    if _may_be_large(config) and parameters(config) > MAX_PARAMETERS:
        raise config_error(
            "model",
            f"must have at most {MAX_PARAMETERS:,} parameters, or no machine holds it",
            got=_largest(config),
            fix="Try smaller sizes.",
        )


def parameters(config: Node) -> float:
    """Returns the number of parameters of the model, without allocating them; inf if a size exceeds
    64 bits. A vocabulary that is not known yet counts as one token.
    """
    model = _on_meta(config)
    return math.inf if model is None else _count(model)


def _count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def meta_model(config: Node) -> Any:
    """Returns the model on the meta device, without values."""
    import torch

    from xformer_kit.model.build import build_model

    with torch.device("meta"):
        return build_model(config, config["model"].get("vocab_size") or 1)


def _on_meta(config: Node) -> Any:
    """Returns the model on the meta device; None if a size exceeds 64 bits."""
    try:
        return meta_model(config)
    # torch's counts have 64 bits; empty() has a TypeError
    except (RuntimeError, OverflowError, MemoryError, TypeError):
        return None


def _sizes(node: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yields (path, value) of each number that sets a size, in a node or in the config's nodes of
    the model: integers, and ffn.expand.
    """
    if not path:
        for name in COMPONENTS:
            yield from _sizes(node.get(name), name)
    elif isinstance(node, Mapping):
        for key, value in node.items():
            if key not in NO_SIZES:
                yield from _sizes(value, f"{path}.{key}")
    elif type(node) is int or (type(node) is float and path == "ffn.expand"):
        yield path, node


def _large(config: Node) -> dict[str, float]:
    """Returns {path: size} of the unusual sizes of a config; those of extras may be blocks."""
    return {
        path: size
        for path, size in _sizes(config)
        if size
        > (MANY_LAYERS if path.endswith(".layers") or path.startswith("extra.") else LARGE_OPTION)
    }


def _may_be_large(config: Node) -> bool:
    """Whether a size is unusual, so that counting the parameters is worth its time."""
    layers, dim = max(depths(config).values()), config["model"]["dim"]
    is_long = config["data"]["seq_len"] > LARGE_OPTION
    return bool(_large(config)) or is_long or layers * dim**2 > LARGE_OPTION**2


def _largest(config: Node) -> str:
    """Returns the largest sizes as overrides of a command line."""
    model = {f"model.{key}": config["model"][key] for key in ("dim", "layers")}
    return ", ".join(f"{path}={size}" for path, size in (_large(config) or model).items())


def _parts(trainer: Node) -> int:
    """Number of parts of a model, each on a device of its own. Processes of a CPU share memory."""
    import torch

    strategy, devices = trainer.get("strategy"), trainer.get("devices", 1)
    accelerator = trainer.get("accelerator", "auto")
    if strategy not in SHARDED or accelerator == "cpu" or not torch.cuda.is_available():
        return 1
    local = len(devices) if isinstance(devices, list) else torch.cuda.device_count()
    if str(devices).isdigit():
        local = int(devices)
    if strategy == "hsdp":
        return trainer.get("shard_ranks") or local
    return launched() or local * trainer.get("num_nodes", 1)


def _memory(trainer: Node) -> tuple[float, str]:
    """Returns (bytes of memory, name of the device) of the device that a run trains on; of this
    machine for a CPU. inf if unknown.
    """
    import torch

    if trainer.get("accelerator", "auto") in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_properties(0).total_memory, "the GPU"
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "this machine"
    except (AttributeError, ValueError, OSError):
        return math.inf, "this machine"
