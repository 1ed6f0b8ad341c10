"""Numbers that are computed in fp32 or better."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor


def at_least_fp32(x: Tensor) -> Tensor:
    """x in fp32, or in fp64 if it is: bf16 cannot represent all integers above 256."""
    return x if x.dtype == torch.float64 else x.float()


def no_autocast(x: Tensor) -> Any:
    """A context without autocast on x's device, which would compute sums in half precision."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def for_linear(x: Tensor) -> Tensor:
    """x in the dtype of linear maps under autocast, for several maps of it: each map by itself
    would convert x, and keep the result for its gradient. Without autocast x.
    """
    device = x.device.type
    if device == "meta" or x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return x
    return x.to(torch.get_autocast_dtype(device))
