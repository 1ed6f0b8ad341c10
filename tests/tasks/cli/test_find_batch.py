"""xformer find-batch: the sizes that are measured, the proposal, and its faults."""

import json
import shlex
import sys

import pytest
import torch

from tasks.cli.find_batch import (
    Limits,
    Measurement,
    measure,
    measure_sizes,
    predicted_memory,
    proposal,
    reset_peak_memory,
)
from tasks.logging.summary import peak_memory
from tasks.run import short_fit
from tests.tasks.command_lines import TINY, fault, output
from xformer_kit import ConfigError
from xformer_kit.config import compose


def machine(fits, examples=10**6, base=100):
    """An attempt with base + size bytes, which runs out of memory above `fits` sequences, and the
    list of its sizes.
    """
    sizes = []

    def attempt(size):
        sizes.append(size)
        return (Measurement(size, 1.0, 1.0, base + size), examples) if size <= fits else None

    return attempt, sizes


def largest(attempt, limits):
    found, _ = measure_sizes(attempt, limits)
    return max(found).batch_size


@pytest.mark.parametrize(("fits", "expected"), [(1, 1), (3, 3), (7, 7), (31, 30), (100, 96)])
def test_sizes_are_doubled_and_then_bisected_to_an_eighth(fits, expected):
    attempt, sizes = machine(fits)
    assert largest(attempt, Limits(512, 1e9)) == expected
    assert sizes[:2] == [1, 2]


@pytest.mark.parametrize("most", [1, 2, 100, 512])
def test_without_a_limit_of_memory_the_largest_is_the_one_of_the_command(most):
    attempt, sizes = machine(fits=10**9)
    assert largest(attempt, Limits(most, 1e9)) == most == max(sizes)


def test_no_size_is_above_the_number_of_examples():
    attempt, sizes = machine(fits=10**9, examples=20)
    found, limits = measure_sizes(attempt, Limits(512, 1e9))
    assert limits.largest == max(found).batch_size == max(sizes) == 20


def test_a_size_whose_predicted_memory_exceeds_the_limit_is_not_attempted():
    attempt, sizes = machine(fits=10**9)
    assert largest(attempt, Limits(512, memory=100 + 50)) == 48
    assert max(sizes) == 48
    found = [Measurement(4, 1.0, 1.0, 140), Measurement(2, 1.0, 1.0, 120)]
    assert predicted_memory(found, 7) == 170


def test_one_sequence_that_does_not_fit_is_a_fault():
    with pytest.raises(ConfigError, match=r"^data.batch_size: not even one sequence fits into 10 "):
        measure_sizes(machine(fits=10**9)[0], Limits(512, memory=10))


def test_the_proposal_is_the_smallest_size_near_the_highest_speed():
    speeds = {1: 10.0, 2: 94.0, 4: 95.5, 8: 100.0, 16: 99.0}
    found = [Measurement(size, speed, 1.0, 1) for size, speed in speeds.items()]
    assert proposal(found).batch_size == 4


def test_a_size_that_runs_out_of_memory_does_not_fit(monkeypatch):
    def fit(config, steps, callback):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(short_fit, "fit", fit)
    assert measure(compose(TINY), 2, steps=1) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets it")
def test_the_peak_memory_of_a_size_leaves_out_that_of_a_larger_one_before():
    cpu = torch.device("cpu")
    torch.ones(2**26)  # 256 MiB, freed at once
    before = peak_memory(cpu)
    reset_peak_memory()
    assert before - peak_memory(cpu) > 2**27


@pytest.mark.extended
def test_each_size_is_trained_and_the_printed_command_composes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = output(capsys, "find-batch", *TINY, "--max", "3", "--steps", "1", "--json")
    found = json.loads(out)
    assert (code, err, list(tmp_path.iterdir())) == (0, "", [])
    assert [size["batch_size"] for size in found["sizes"]] == [1, 2, 3]
    for size in found["sizes"]:  # 16 tokens per sequence
        tokens = size["tokens_per_second"] * size["seconds_per_step"]
        assert tokens == pytest.approx(16 * size["batch_size"])
        assert 0 < size["peak_memory_bytes"] < found["memory_limit_bytes"]
    assert found["largest"] == 3
    overrides = shlex.split(found["command"])[2:]
    assert compose(overrides)["data"]["batch_size"] in (1, 2, 3)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--max", "0"], "--max: must be at least 1; got 0."),
        (["--memory", "nan"], "--memory: must be above 0 GiB and finite; got nan."),
        (["trainer.accumulate=2"], "trainer.accumulate: must be 1 or auto, since memory limits"),
        (
            ["model=encoder_decoder", "task=seq2seq", "data.batch_tokens=4096"],
            "data.batch_tokens: replaces data.batch_size, which xformer find-batch finds",
        ),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_invalid_arguments_have_one_message_and_write_nothing(
    capsys, tmp_path, monkeypatch, words, answer
):
    monkeypatch.chdir(tmp_path)
    assert fault(capsys, "find-batch", *words).startswith(answer)
    assert list(tmp_path.iterdir()) == []
