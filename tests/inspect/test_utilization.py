"""Model FLOPs utilization, by the published peaks of GPUs."""

import tomllib

import pytest
import torch

from xformer_kit.inspect.utilization import TABLE, peak_flops, peak_speed

GPU = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("name", "peak"),
    [("NVIDIA H200", 989.4e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("NVIDIA L4", 121e12)],
)
def test_the_peak_is_that_of_the_devices_name(monkeypatch, name, peak):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(GPU) == peak


@pytest.mark.parametrize(
    "name", ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "Tesla T4"]
)
def test_the_peak_of_a_part_of_a_gpu_or_of_another_gpu_is_not_known(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(GPU) is None


def test_the_peak_of_a_cpu_is_not_known():
    assert peak_flops(torch.device("cpu")) is None


def test_palms_mfu_by_hand():
    """PaLM 540B: 238.3K tokens/s on 6,144 TPU v4 chips of 275 TFLOP/s, and 6 N + 12 L H Q T FLOPs
    per token, are an MFU of 46.2 % (Chowdhery et al., 2022, arXiv:2204.02311, table 3 and
    appendix B).
    """
    flops_per_token = 6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048
    assert 238.3e3 / peak_speed(275e12, 6144, flops_per_token) == pytest.approx(0.462, abs=1e-3)


def test_every_published_peak_is_a_number_of_teraflops():
    assert all(50 < peak < 10_000 for peak in tomllib.loads(TABLE.read_text()).values())
