"""The length of a run: trainer.max_steps, max_tokens and max_epochs in optimizer steps."""

from itertools import product

import pytest

from xformer_kit import ConfigError, compose
from xformer_kit.config import preflight
from xformer_kit.config.line.to_overrides import to_overrides
from xformer_kit.data.run_length import known_steps, run_steps, step_tokens

ROWS = {"batch_size": 4, "seq_len": 25}  # 100 tokens in a step
TINY = ["data.batch_size=4", "data.seq_len=25"]


def config(data=ROWS, **trainer):
    return {"data": data, "trainer": trainer}


@pytest.mark.parametrize(("tokens", "steps"), [(100, 1), (199, 1), (200, 2), (10**9, 10**7)])
def test_tokens_are_whole_steps(tokens, steps):
    assert known_steps(config(max_steps=None, max_tokens=tokens)) == steps
    assert steps * step_tokens(ROWS) <= tokens < (steps + 1) * step_tokens(ROWS)


def test_the_tokens_of_a_step_are_those_of_batch_tokens():
    data = {"batch_size": 4, "batch_tokens": 300, "seq_len": 25}
    assert known_steps(config(data, max_tokens=1000)) == 3


def test_the_smallest_length_counts():
    """Over all choices of three lengths that are set or null."""
    lengths = {"max_steps": (7, 40), "max_tokens": (500, 4000), "max_epochs": (1, 4)}
    in_steps = {500: 5, 4000: 40, 1: 6, 4: 24, 7: 7}
    for values in product(*((None, *pair) for pair in lengths.values())):
        if any(values):
            trainer = dict(zip(lengths, values, strict=True))
            expected = min(in_steps.get(value, value) for value in values if value)
            assert run_steps(config(**trainer), steps_per_epoch=6) == expected, trainer


def test_without_the_data_epochs_are_not_known():
    assert known_steps(config(max_steps=None, max_epochs=3)) is None


@pytest.mark.parametrize(
    ("words", "lengths"),
    [
        (["trainer.max_tokens=1e9"], (None, 10**9, None)),
        (["trainer.max_epochs=3"], (None, None, 3)),
        (["trainer.max_tokens=1e9", "trainer.max_steps=5"], (5, 10**9, None)),
    ],
)
def test_a_length_on_the_line_replaces_the_default_of_another(words, lengths):
    trainer = compose(words)["trainer"]
    assert (trainer["max_steps"], trainer["max_tokens"], trainer["max_epochs"]) == lengths
    config = compose(words, data=False)
    assert compose(to_overrides(config), data=False) == config  # as for a saved run


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (
            [*TINY, "trainer.max_tokens=99"],
            (
                "trainer.max_tokens: must be at least the 100 tokens of one step, data.batch_size *"
                " data.seq_len; got 99. Give the tokens of the whole run, such as 1e9."
            ),
        ),
        (
            [*TINY, "schedule.warmup=3", "trainer.max_tokens=300"],
            (
                "schedule.warmup: must be below the steps of the run, or the learning rate never"
                " reaches optim.lr; got 3 and 3. Try schedule.warmup=0."
            ),
        ),
        (
            ["schedule=cosine", "schedule.restarts=4", "trainer.max_steps=9"],
            "schedule.restarts: must leave two steps for each cycle of the run; got 4 and 9. Try 3",
        ),
        (["trainer.max_tokens=1.5"], "trainer.max_tokens: must be a whole number or null; got 1.5"),
        (["trainer.max_tokens=1e16"], "trainer.max_tokens: must be at most 1,000,000,000,000,000;"),
    ],
)
def test_faults(words, rule):
    with pytest.raises(ConfigError) as raised:
        preflight(words)
    assert str(raised.value).startswith(rule)
