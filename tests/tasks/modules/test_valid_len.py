"""Validation on longer examples than those of training: data.valid_len."""

import json

import pytest

from xformer_kit import compose
from xformer_kit.data import prepare

LONG = ["data.valid_len=64", "model.max_len=64"]


def judged(begin, name, *words):
    """val/loss of a short run."""
    code, folder = begin(name, "optim.lr=1e-2", *words)
    assert code == 0
    return json.loads((folder / "summary.json").read_text())["val/loss"]


def test_longer_windows_hold_the_same_tokens(config):
    short, long = (prepare(config(*words)).valid for words in ([], LONG))
    assert (short.seq_len, long.seq_len) == (16, 64) and short.predicted == long.predicted
    assert long[0]["tokens"].tolist() == [
        *short[0]["tokens"],
        *(t for i in (1, 2, 3) for t in short[i]["tokens"][1:]),
    ]
    assert prepare(config(*LONG)).train.seq_len == 16


@pytest.mark.extended
@pytest.mark.parametrize(("position", "same"), [("none", True), ("learned", False)])
def test_valid_len_changes_the_loss_only_with_positions(begin, position, same):
    blind = ["mask=sliding_window", "mask.window=1", f"position={position}"]
    long, short = judged(begin, "long", *blind, *LONG), judged(begin, "short", *blind)
    assert (long == pytest.approx(short, rel=1e-5)) == same


def test_a_batch_of_longer_examples_has_as_many_tokens(config):
    from xformer_kit.data.preparation.training_data import TrainingData
    from xformer_kit.objective import Objective

    found = config(*LONG)
    prepared = prepare(found)
    data = TrainingData(found, prepared, Objective())
    for count, expected in ((8, 2), (4, 1)):  # examples of validation are four times as long
        rows = [len(batch) for _, batch in data.valid_batches(count)]
        assert max(rows) == expected and sum(rows) == len(prepared.valid)
    assert (
        compose(["data.valid_len=96"])["data"]["valid_len"] == 96
    )  # a shorter one needs nothing of the model
