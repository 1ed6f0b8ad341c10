"""xformer find-lr: the proposal, the picture, the command line, and its faults."""

import json
import math
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from tasks.cli import find_lr
from tasks.cli.find_lr import RangeTest, smooth, steepest
from tests.tasks.command_lines import TINY, fault, output
from xformer_kit.config import compose, read_config
from xformer_kit.config.line.to_overrides import to_overrides

RATES = [10.0**exponent for exponent in range(-6, 1)]


def test_the_proposal_is_where_the_loss_falls_most_over_the_logarithm_of_the_rate():
    assert steepest(RATES, [9, 9, 8.9, 7, 5.1, 5, 8]) == 1e-3
    # The fall after the minimum of a loss that grows again is not proposed.
    assert steepest(RATES, [9, 8.5, 8, 9, 20, 15, 9]) == 1e-5


@pytest.mark.parametrize("losses", [[], [3.0], [3.0, 4.0], [1, 2, 3, 4, 5, 6, 7], [3] * 7])
def test_a_loss_that_never_falls_has_no_proposal(losses):
    assert steepest(RATES[: len(losses)], losses) is None


def test_smoothing_leaves_a_line_and_moves_no_peak():
    assert smooth([1, 2, 3, 4, 5], 3)[1:-1] == [2, 3, 4]
    assert smooth([0, 0, 3, 0, 0], 3) == [0, 1, 1, 1, 0]


@pytest.mark.extended
def test_the_rates_increase_geometrically_and_the_printed_command_composes(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = [*TINY, "optim.lr=0.1", "--min", "1e-4", "--max", "1e4", "--steps", "33", "--json"]
    code, out, err = output(capsys, "find-lr", *words)
    found = json.loads(out)
    rates, losses = found["rates"], found["losses"]
    assert (code, err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["find_lr.png"]
    assert rates[0] == pytest.approx(1e-4)
    assert {round(math.log10(b / a), 6) for a, b in pairwise(rates)} == {0.25}
    assert len(rates) == len(losses) < 33  # the test ends when the loss diverges
    assert min(losses) < losses[0] - 0.1
    assert rates[0] < found["proposal"] < rates[-1]
    python, train, *overrides = shlex.split(found["command"])
    assert (python, train) in (("python", "train.py"), ("xformer", "train"))
    assert compose(overrides)["optim"]["lr"] == found["proposal"]


def test_the_page_says_that_the_loss_diverged_or_never_fell(capsys):
    result = RangeTest([1e-4, 1e-3], [3.0, 2.0], [3.0, 2.0], 1e-3)
    find_lr._print_page(result, Path("x.png"), "python train.py optim.lr=0.001", ended=True)
    assert capsys.readouterr().out == (
        "2 steps: x.png\nThe test ended there, since the loss of the next step had diverged.\n"
        "The loss falls most steeply at 0.001:\n  python train.py optim.lr=0.001\n"
    )
    find_lr._print_page(result, Path("x.png"), None, ended=False)
    assert "The loss never fell." in capsys.readouterr().out


@pytest.mark.extended
def test_it_starts_from_the_weights_of_a_run_and_needs_no_validation(capsys, tmp_path, begin):
    """Early stopping, which needs validations, and whatever else only observes has no effect."""
    _, run = begin("run", "optim.lr=0.05")
    words = [*to_overrides(read_config(run)), "callbacks.early_stopping={}"]
    words += ["--steps", "20", "--json", "--save", str(tmp_path / "lr.png")]
    losses = []
    for extra in ([], [f"init_from={run}"]):
        code, out, err = output(capsys, "find-lr", *words, *extra)
        assert code in (0, 1) and err == ""  # 1: the loss did not fall further
        losses.append(json.loads(out)["losses"])
    assert losses[1][0] < losses[0][0] - 0.3


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["--min", "1", "--max", "0.1"],
            "--min: must be above 0 and below --max, which is finite; got 1 and 0.1.",
        ),
        (
            ["--max", "inf"],
            "--min: must be above 0 and below --max, which is finite; got 1e-05 and inf.",
        ),
        (
            ["--max", "0"],
            "--min: must be above 0 and below --max, which is finite; got 1e-05 and 0.",
        ),
        (["--steps", "1000000"], "--steps: must be at most 100,000; got 1,000,000."),
        (["--steps", "5"], "--steps: must be at least 20; got 5."),
        (["--save", "x.jpg"], "--save: must end in one of .png, .svg, .pdf; got '.jpg'."),
        (["outputs/x"], "outputs/x: cannot be read as key=value."),
        (["trainer.devices=2"], "trainer.devices: must be 1 for xformer find-lr, which finds"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_invalid_arguments_have_one_message_and_write_nothing(
    capsys, tmp_path, monkeypatch, words, answer
):
    monkeypatch.chdir(tmp_path)
    assert fault(capsys, "find-lr", *words).startswith(answer)
    assert list(tmp_path.iterdir()) == []


def test_options_that_are_wrong_by_themselves_are_refused_before_the_config(capsys, monkeypatch):
    monkeypatch.setattr("tasks.cli.find_lr.config_of", lambda words: pytest.fail("is composed"))
    assert fault(capsys, "find-lr", "--steps", "5") == "--steps: must be at least 20; got 5."
