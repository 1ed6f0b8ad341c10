"""Checks of a model's size: whether the machine can hold it, before anything is written."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xformer_kit.extra import EXTRAS
from xformer_kit.plan import depths
from xformer_kit.registry import ConfigError, Fault, Faults, Node, config_error

# The memory is computed only if an option of a component is above this, or the layers are many.
LARGE_OPTION = 10_000
MAX_BUILT_LAYERS = 100  # a model of more layers is not built to be counted, but extrapolated
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
COMPONENTS = ("model", "attn", "ffn", "position", "norm", "placement")


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
    needed = parameter_bytes * parameters(config) + VALUE_BYTES * _over_layers(config, _buffers)
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
    nodes = {name: config[name] for name in COMPONENTS} | {"data": data}
    sizes = [pair for name, node in nodes.items() for pair in _sizes(node, name)]
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
    """Returns the number of parameters of the model, without allocating them: extrapolated from
    fewer layers if there are very many, inf if a size exceeds 64 bits. A vocabulary that is not
    known yet counts as one token.
    """
    return _over_layers(config, _parameters)


def _over_layers(config: Node, count: Callable[[Any], int]) -> float:
    """Returns count(model), extrapolated linearly from fewer layers if there are very many."""
    config = _unshared(config)
    layers = max(_layers(config).values())
    if layers <= MAX_BUILT_LAYERS:
        return _count(config, count)
    few, more = (
        _count(_cut(config, cap), count) for cap in (MAX_BUILT_LAYERS // 10, MAX_BUILT_LAYERS // 5)
    )
    return more + (more - few) / (MAX_BUILT_LAYERS // 10) * (layers - MAX_BUILT_LAYERS // 5)


def _parameters(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


def _buffers(model: Any) -> int:
    return sum(b.numel() for b in model.buffers())


def _unshared(config: Node) -> dict[str, Any]:
    """Returns the config with each stack cut to its layers with weights of their own."""
    model = {**config["model"], "unique_layers": None}
    for name, layers in depths(config).items():
        stack = model[name] or {}
        own = stack.get("unique_layers") or config["model"]["unique_layers"] or layers
        if own < layers:
            model[name] = {**stack, "layers": own, "unique_layers": None}
    return {**config, "model": model}


def _count(config: Node, count: Callable[[Any], int]) -> float:
    """Returns count(model) of the model on the meta device; inf if a size exceeds 64 bits."""
    import torch

    from xformer_kit.model.build import build_model

    try:
        with torch.device("meta"):
            return count(build_model(config, config["model"].get("vocab_size") or 1))
    # torch's counts have 64 bits; empty() has a TypeError
    except (RuntimeError, OverflowError, MemoryError, TypeError):
        return math.inf


def _layers(config: Node) -> dict[str, int]:
    """Returns {config path: number of layers} of the model and of stacks with their own number, and
    {config path: value} of integers of extras that add blocks.
    """
    model = config["model"]
    found = {"model.layers": model["layers"], **dict(_sizes(_with_blocks(config), "extra"))}
    for name in depths(config):
        if layers := (model[name] or {}).get("layers"):
            found[f"model.{name}.layers"] = layers
    return found


def _with_blocks(config: Node) -> dict[str, Node]:
    """Returns the extras that add blocks."""
    extras = (config.get("extra") or {}).items()
    return {name: node for name, node in extras if EXTRAS[name].overrides("add_blocks")}


def _cut(config: Node, cap: int) -> dict[str, Any]:
    """Returns the config with at most `cap` layers."""
    model = {**config["model"], "layers": min(config["model"]["layers"], cap)}
    extra = {**(config.get("extra") or {})}
    for name, node in _with_blocks(config).items():
        extra[name] = {key: min(x, cap) if type(x) is int else x for key, x in node.items()}
    for name, layers in depths(config).items():
        model[name] = {**(model[name] or {}), "layers": min(layers, cap)}
    return {**config, "model": model, "extra": extra}


def _sizes(node: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yields (path, value) of each number in a node that sets a size: integers, and ffn.expand."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key not in NO_SIZES:
                yield from _sizes(value, f"{path}.{key}")
    elif type(node) is int or (type(node) is float and path == "ffn.expand"):
        yield path, node


def _may_be_large(config: Node) -> bool:
    """Whether a size is unusual, so that counting the parameters is worth its time."""
    model = config["model"]
    sizes = [size for name in COMPONENTS for _, size in _sizes(config[name], name)]
    layers = max(_layers(config).values())
    return (
        max(*sizes, config["data"]["seq_len"]) > LARGE_OPTION
        or layers > MAX_BUILT_LAYERS
        or layers * model["dim"] ** 2 > LARGE_OPTION**2
    )


def _largest(config: Node) -> str:
    """Returns the largest sizes as overrides of a command line."""
    layers = _layers(config)
    sizes = layers | dict(pair for name in COMPONENTS for pair in _sizes(config[name], name))
    large = [
        path
        for path, size in sizes.items()
        if size > (MAX_BUILT_LAYERS if path in layers else LARGE_OPTION)
    ]
    return ", ".join(f"{path}={sizes[path]}" for path in large or ("model.dim", "model.layers"))


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
