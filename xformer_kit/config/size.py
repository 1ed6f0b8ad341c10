"""Can this machine hold the model of a config? Asked before anything is written."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xformer_kit.extra import EXTRAS
from xformer_kit.plan import depths
from xformer_kit.registry import ConfigError, Fault, Faults, Node, config_error

# an option of a component above it, or more than a hundredth as many layers: look closer
SUSPICIOUS = 10_000
WHOLE = 100  # layers up to which a model is built to be counted; beyond them it is extrapolated
VALUE = 4  # bytes of a value in fp32
BYTES = 16  # of a parameter in training: weight, gradient, and two averages of AdamW, in fp32
NARROW = {"bf16-true": 0.5, "16-true": 0.5, "64-true": 2.0}  # trainer.precision -> factor
# Of a size: longer than any text that a model was published for, wider than any layer.
LARGEST = 10**8
MOST = 10**15  # parameters of a model that is described without its memory
NO_SIZES = ("seed", "theta")  # numbers of components that nothing grows with
COMPONENTS = ("model", "attn", "ffn", "position", "norm", "placement")


def too_large(config: Node, training: bool = True) -> Faults:
    """The sentence for a model whose training does not fit into the memory of its device, or
    without `training` for one whose weights do not fit into that of this machine.
    """
    if not _suspicious(config):
        return
    trainer = config["trainer"] if training else {"accelerator": "cpu"}
    there, kind = _memory(trainer)
    each = BYTES * NARROW.get(trainer.get("precision"), 1) if training else VALUE
    needed = each * parameters(config) + VALUE * _over_layers(config, _buffers)
    if needed <= there:
        return
    known = math.isfinite(needed)
    need = f"about {needed / 2**30:,.0f} GiB" if known else "more GiB than can be counted"
    what = "weights, gradients and optimizer state" if training else "weights"
    yield Fault(
        "model",
        f"its {what} need {need}, and {kind} has {there / 2**30:,.0f} GiB",
        got=_largest(config),
        fix="Try smaller sizes.",
    )


def ensure_countable(config: Node) -> None:
    """Raises ConfigError for sizes that no machine holds, before a model is built on the meta
    device to be described.
    """
    data = {key: config["data"].get(key) for key in ("seq_len", "batch_size", "batch_tokens")}
    nodes = {name: config[name] for name in COMPONENTS} | {"data": data}
    sizes = [pair for name, node in nodes.items() for pair in _sizes(node, name)]
    if faults := [
        Fault(path, f"must be at most {LARGEST:,}, or no machine holds the model", size)
        for path, size in sizes
        if size > LARGEST
    ]:
        raise ConfigError(faults)
    if _suspicious(config) and parameters(config) > MOST:
        raise config_error(
            "model",
            f"must have at most {MOST:,} parameters, or no machine holds it",
            got=_largest(config),
            fix="Try smaller sizes.",
        )


def parameters(config: Node) -> float:
    """How many parameters the model has, without its memory: of very many layers by what a layer
    adds; inf where sizes are beyond 64 bits. A vocabulary that is not known yet counts as none.
    """
    return _over_layers(config, _parameters)


def _over_layers(config: Node, count: Callable[[Any], int]) -> float:
    config = _unshared(config)
    most = max(_layers(config).values())
    if most <= WHOLE:
        return _count(config, count)
    few, more = (_count(_cut(config, cap), count) for cap in (WHOLE // 10, WHOLE // 5))
    return more + (more - few) / (WHOLE // 10) * (most - WHOLE // 5)


def _parameters(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


def _buffers(model: Any) -> int:
    return sum(b.numel() for b in model.buffers())


def _unshared(config: Node) -> dict[str, Any]:
    """The config with as many layers as have weights of their own."""
    model = {**config["model"], "unique_layers": None}
    for name, layers in depths(config).items():
        stack = model[name] or {}
        own = stack.get("unique_layers") or config["model"]["unique_layers"] or layers
        if own < layers:
            model[name] = {**stack, "layers": own, "unique_layers": None}
    return {**config, "model": model}


def _count(config: Node, count: Callable[[Any], int]) -> float:
    import torch

    from xformer_kit.model.build import build_model

    try:
        with torch.device("meta"):
            return count(build_model(config, config["model"].get("vocab_size") or 1))
    # torch's counts have 64 bits; empty() has a TypeError
    except (RuntimeError, OverflowError, MemoryError, TypeError):
        return math.inf


def _layers(config: Node) -> dict[str, int]:
    """Config path -> layers, of the model and of stacks that have their own number, and whole
    numbers of extras that add blocks.
    """
    model = config["model"]
    found = {"model.layers": model["layers"], **dict(_sizes(_with_blocks(config), "extra"))}
    for name in depths(config):
        if layers := (model[name] or {}).get("layers"):
            found[f"model.{name}.layers"] = layers
    return found


def _with_blocks(config: Node) -> dict[str, Node]:
    """The extras that add blocks."""
    extras = (config.get("extra") or {}).items()
    return {name: node for name, node in extras if EXTRAS[name].overrides("add_blocks")}


def _cut(config: Node, cap: int) -> dict[str, Any]:
    """The config with at most `cap` layers."""
    model = {**config["model"], "layers": min(config["model"]["layers"], cap)}
    extra = {**(config.get("extra") or {})}
    for name, node in _with_blocks(config).items():
        extra[name] = {key: min(x, cap) if type(x) is int else x for key, x in node.items()}
    for name, layers in depths(config).items():
        model[name] = {**(model[name] or {}), "layers": min(layers, cap)}
    return {**config, "model": model, "extra": extra}


def _sizes(node: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key not in NO_SIZES:
                yield from _sizes(value, f"{path}.{key}")
    elif isinstance(node, int) and not isinstance(node, bool):
        yield path, node


def _suspicious(config: Node) -> bool:
    model = config["model"]
    sizes = [size for name in COMPONENTS for _, size in _sizes(config[name], name)]
    many = max(_layers(config).values())
    return (
        max(*sizes, config["data"]["seq_len"]) > SUSPICIOUS
        or many > WHOLE
        or many * model["dim"] ** 2 > SUSPICIOUS**2
    )


def _largest(config: Node) -> str:
    """The sizes that stand out, as they are written on a command line."""
    layers = _layers(config)
    sizes = layers | dict(pair for name in COMPONENTS for pair in _sizes(config[name], name))
    shown = [
        path for path, size in sizes.items() if size > (WHOLE if path in layers else SUSPICIOUS)
    ]
    return ", ".join(f"{path}={sizes[path]}" for path in shown or ("model.dim", "model.layers"))


def _memory(trainer: Node) -> tuple[float, str]:
    """(bytes, what has them) of the device that a run trains on; of this machine for a CPU. inf
    where it is not known.
    """
    import torch

    if trainer.get("accelerator", "auto") in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_properties(0).total_memory, "the GPU"
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "this machine"
    except (AttributeError, ValueError, OSError):
        return math.inf, "this machine"
