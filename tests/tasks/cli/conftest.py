"""A finished run for the commands that read runs."""

import pytest


@pytest.fixture
def finished(begin):
    """A run of four steps, whose positions end at 48 tokens."""
    words = ("trainer.max_steps=4", "trainer.val_every=2", "position=learned", "model.max_len=48")
    code, run = begin("run", *words, "metrics.accuracy={}")
    assert code == 0
    return run
