"""Models of transformers in float64: their casts to fp32, in norms and softmax, do nothing."""

import math
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

DOUBLE = torch.float64


class KeepFloat64(TorchFunctionMode):
    """Leaves tensors of float64 as they are where a model casts them to fp32."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        is_double = bool(args) and isinstance(args[0], torch.Tensor) and args[0].dtype == DOUBLE
        if is_double and function is torch.Tensor.float:
            return args[0]
        if function is torch.polar:  # DeepSeek-V2; it rounds in fp32 otherwise than cos and sin
            size, angle = args
            return torch.complex(size * angle.cos(), size * angle.sin())
        if function is torch.full and isinstance(args[1], float):  # XGLM: the least number
            kwargs.setdefault("dtype", DOUBLE)
        if function is torch.Tensor.bfloat16:  # Falcon rounds the slopes of ALiBi in any precision
            return args[0]
        if is_double:
            args = tuple(DOUBLE if arg is torch.float32 else arg for arg in args)
            kwargs = {k: DOUBLE if v is torch.float32 else v for k, v in kwargs.items()}
        return function(*args, **kwargs)


def has_waves(module: nn.Module) -> bool:
    """Whether a module is a table of sinusoids."""
    return "Sinusoidal" in type(module).__name__


def exact_waves(module: Any) -> None:
    """Gives a table of fairseq's sinusoids, whose angles transformers computes in fp32, the values
    of its equation, rounded to fp32.
    """
    name = "weights" if hasattr(module, "weights") else "weight"
    table = getattr(module, name)
    half = module.embedding_dim // 2
    rates = (torch.arange(half, dtype=DOUBLE) * (-math.log(10_000) / (half - 1))).exp()
    angle = torch.arange(len(table), dtype=DOUBLE)[:, None] * rates
    waves = torch.cat([angle.sin(), angle.cos()], -1)
    if module.padding_idx is not None:
        waves[module.padding_idx] = 0
    table.data.copy_(waves.float())


def double(model: Any) -> Any:
    """Casts a model to float64, but not the rates of rotary positions, which are numbers in fp32 in
    every precision. Gemma's factor on embeddings is in the precision of the model, fairseq's
    sinusoids are exact, and BLOOM's gelu has sqrt(2 / pi) with 8 digits.
    """
    model = model.double()
    for module in model.modules():
        if hasattr(module, "scalar_embed_scale"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=DOUBLE)
        if has_waves(module) and hasattr(module, "get_embedding"):
            exact_waves(module)
        if type(module).__name__ == "BloomGelu":
            module.forward = partial(F.gelu, approximate="tanh")
        for name, buffer in module.named_buffers(recurse=False):
            if "inv_freq" in name:
                setattr(module, name, buffer.float())
    return model
