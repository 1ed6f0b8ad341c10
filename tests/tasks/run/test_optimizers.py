"""Each optimizer in a run in mixed precision, and the checkpoint of one in another process."""

import subprocess
import sys

import pytest

from tests.train_processes import ROOT
from xformer_kit.optim import OPTIMIZERS

WORDS = ["trainer.max_steps=3", "trainer.accelerator=cpu", "logger=none"]
# Matrices of 4,096 numbers, from which on adamw_8bit keeps 8 bits.
WORDS += ["model.dim=64", "model.layers=1", "attn.heads=2", "data.seq_len=16", "data.batch_size=4"]


@pytest.mark.extended
@pytest.mark.parametrize("optim", OPTIMIZERS)
def test_a_run_in_mixed_precision_ends(optim, begin):
    """An optimizer computes in its own precision, not in that of the model."""
    code, run = begin("run", *WORDS, f"optim={optim}", "trainer.precision=bf16-mixed")
    assert code == 0
    if optim == "adamw_8bit":  # whose state is of a class of its library
        script = f"from xformer_kit import load; load({str(run)!r})"
        found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True)
        assert found.returncode == 0, found.stderr[-500:]
