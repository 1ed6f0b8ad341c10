"""Model FLOPs utilization (MFU): the share of a device's published peak that training uses.

MFU = (FLOPs per token) (tokens per second) / (devices (peak FLOPs per second of a device))

(Chowdhery et al., 2022, arXiv:2204.02311, appendix B). The FLOPs are those of `inspect.flops`,
forward and backward: what is computed again in the backward pass does not count, and all scores of
an attention count, also those that a mask hides. Tokens are without padding. The peak is that of
bf16 matrix products without sparsity, in every trainer.precision.
"""

import tomllib
from pathlib import Path

import torch

TABLE = Path(__file__).with_name("peak_flops.toml")


def peak_flops(device: torch.device) -> float | None:
    """Returns the published peak of a device in bf16 FLOPs per second; None on a CPU, whose peak is
    not known, and for a GPU that is not in peak_flops.toml.
    """
    if device.type != "cuda":
        return None
    peak = tomllib.loads(TABLE.read_text()).get(torch.cuda.get_device_name(device))
    return None if peak is None else 1e12 * peak


def peak_speed(peak: float, devices: int, flops_per_token: float) -> float:
    """Returns the tokens per second of several equal devices at an MFU of 1. peak: of a device, in
    FLOPs per second.
    """
    return devices * peak / flops_per_token
