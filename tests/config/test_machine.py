import pytest
import torch

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.config import preflight
from xformer_kit.config.faults.machine import run_faults


def whole(**nodes):
    """The default config with these values in its nodes."""
    config = compose([])
    return config | {key: {**config[key], **node} for key, node in nodes.items()}


@pytest.mark.parametrize(
    ("nodes", "fault"),
    [
        (
            {"trainer": {"devices": 3}, "data": {"batch_size": 8}},
            "data.batch_size: must be a multiple of accumulation",
        ),
        (
            {"trainer": {"devices": 2, "accumulate": 8}, "data": {"batch_size": 8}},
            "data.batch_size: must be a multiple",
        ),
        (
            {"trainer": {"accelerator": "cuda"}},
            "trainer.accelerator: this machine has no cuda device",
        ),
        (
            {"trainer": {"accelerator": "gpu"}},
            "trainer.accelerator: this machine has no cuda device",
        ),
        (
            {"trainer": {"accelerator": "mps"}},
            "trainer.accelerator: this machine has no mps device",
        ),
        (
            {"trainer": {"accelerator": "cpu", "devices": [0]}},
            "trainer.devices: a CPU has no indices; got [0].",
        ),
        (
            {"trainer": {"precision": "fp8-mixed"}},
            "trainer.precision: needs a GPU with products in 8 bits",
        ),
        ({"data": {"num_workers": 10**6}}, "data.num_workers: must be at most 4 per core, "),
        ({"logger": {"name": "tensorboard"}}, "logger: tensorboard is not installed"),
        (
            {"logger": {"name": "mlflow"}},
            "logger: mlflow is not installed; got logger=mlflow. Try pip install mlflow, or",
        ),
    ],
)
def test_what_this_machine_cannot_do_is_a_sentence(nodes, fault, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    config = whole(**nodes)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (found,) = messages(run_faults(config))
    assert found.startswith(fault)


def test_more_gpus_than_there_are_is_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    (found,) = messages(run_faults(whole(trainer={"devices": 4})))
    rule = "trainer.devices: must be at most 2, or indices below it: the cuda devices here"
    assert found == f"{rule}; got 4."
    (found,) = messages(run_faults(whole(trainer={"devices": [0, 5]})))
    assert found == f"{rule}; got [0, 5]."


def test_a_command_line_is_refused_here_and_left_to_where_a_launcher_sends_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["trainer.accelerator=cuda", "data.cache=/proc/cache"]
    with pytest.raises(ConfigError) as refused:
        preflight(words)
    assert [fault.split(":")[0] for fault in refused.value.messages] == [
        "trainer.accelerator",
        "data.cache",
    ]
    assert not messages(run_faults(compose(words), here=False))
    uneven = compose(["trainer.accumulate=3"])
    (found,) = messages(run_faults(uneven, here=False))
    assert found.startswith(
        "data.batch_size: must be a multiple of accumulation times devices, 3 x 1 = 3; got 8."
    )
