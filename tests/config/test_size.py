"""A model that cannot be held is refused before anything is written or built."""

import os
from types import SimpleNamespace

import pytest
import torch

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.config.faults import size
from xformer_kit.config.faults.machine import run_faults
from xformer_kit.launcher import launched

MEMORY = 16 * 2**30


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine of 16 GiB without a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": MEMORY // 4096}.get)


@pytest.mark.parametrize(
    ("words", "got"),
    [
        (["model.dim=1000000000"], "model.dim=1000000000"),
        (["position=learned", "model.max_len=1000000000000"], "model.max_len=1000000000000"),
        (["model.layers=200", "model.dim=2048"], "model.layers=200"),
        (["model.vocab_size=1000000000000"], "model.vocab_size=1000000000000"),
        (["ffn.width=1000000000"], "ffn.width=1000000000"),
        (["ffn.expand=1e9"], "ffn.expand=1000000000.0"),
        (["ffn.expand=1e300"], "ffn.expand=1e+300"),
        (["model.dim=8192", "model.layers=80"], "model.dim=8192, model.layers=80"),
    ],
    ids=lambda x: x[-1] if isinstance(x, list) else "",
)
def test_a_model_beyond_the_memory_is_a_sentence(words, got):
    (found,) = messages(run_faults(compose(words)))
    assert found.startswith("model: its weights, gradients and optimizer state need ")
    assert found.endswith(f", and this machine has 16 GiB; got {got}. Try smaller sizes.")


def test_what_fits_is_not_refused():
    for words in (
        ["model.dim=1024", "model.layers=24"],
        ["model.vocab_size=50257"],
        ["model.layers=200"],
    ):
        assert not messages(run_faults(compose(words)))


def test_an_ordinary_config_is_not_built(monkeypatch):
    monkeypatch.setattr(size, "_on_meta", lambda config: pytest.fail("the model was built"))
    assert not messages(run_faults(compose([])))


def test_the_memory_of_training_is_that_of_its_parameters():
    """AdamW in fp32 holds a weight, a gradient and two averages: 4 x 4 bytes."""
    from xformer_kit.inspect.memory import training_memory

    config = compose(
        [
            "model.dim=64",
            "model.layers=2",
            "attn.heads=2",
            "model.vocab_size=256",
            "trainer.precision=32-true",
        ]
    )
    found = training_memory(config, 256)
    assert found.weights + found.gradients + found.optimizer == pytest.approx(
        size.BYTES * size.parameters(config), rel=0.01
    )


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["model.dim=4000000000", "attn.heads=8"], "model.dim"),
        (["model.vocab_size=99999999999"], "model.vocab_size"),
        (["attn.v_head_dim=100000000000"], "attn.v_head_dim"),
        (["data.seq_len=99999999999"], "data.seq_len"),
        (["data.batch_size=99999999999"], "data.batch_size"),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_a_size_beyond_any_machine_is_refused_before_anything_is_built(monkeypatch, words, path):
    config = compose(words)
    monkeypatch.setattr(size, "_on_meta", lambda *_: pytest.fail("the model was built"))
    with pytest.raises(ConfigError) as error:
        size.ensure_countable(config)
    got = words[0].partition("=")[2]
    assert list(error.value.messages) == [
        f"{path}: must be at most 100,000,000, or no machine holds the model; got {got}."
    ]


def test_sizes_that_together_are_beyond_any_machine_are_refused():
    with pytest.raises(ConfigError) as error:
        size.ensure_countable(compose(["model.dim=100000000"]))
    assert (
        str(error.value)
        == "model: must have at most 1,000,000,000,000,000 parameters, or no machine holds it; got"
        " model.dim=100000000. Try smaller sizes."
    )


def test_a_large_but_real_model_is_countable():
    """1e12 parameters, and the longest texts that a model was published for."""
    size.ensure_countable(compose(["model.dim=25600", "attn.heads=160", "model.layers=128"]))
    size.ensure_countable(compose(["data.seq_len=100000000"]))
    size.ensure_countable(compose(["position.theta=100000000000"]))


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        (["trainer=ddp"], False),
        (["trainer=fsdp"], True),
        (["trainer=fsdp", "trainer.devices=2"], False),
        (["trainer=hsdp"], True),
        (["trainer=hsdp", "trainer.shard_ranks=2"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_sharded_model_needs_a_part_of_its_memory_on_each_gpu(words, fits, monkeypatch):
    """1.2 billion parameters, 18 GiB, on 8 GPUs of 8 GiB."""
    gpu = SimpleNamespace(total_memory=8 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    config = compose(["model.dim=2048", "model.layers=24", "data.batch_size=64", *words])
    found = messages(size.memory_faults(config))
    assert not found if fits else "and the GPU has 8 GiB" in found[0]


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, 0),
        ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "16"}, 16),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, 8),
    ],
)
def test_the_number_of_processes_that_a_launcher_started(environment, count, monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched() == count
