"""A run whose blocks are compiled."""

import pytest
import torch

from tasks.modules.evaluation import EvaluatedTask
from tasks.run import trainer
from xformer_kit.data.batch import num_rows
from xformer_kit.model.compiling import compile_blocks


@pytest.fixture
def graphs(monkeypatch):
    """The compiled graphs, of an eager backend: the compilation of a kernel takes longer."""
    found = []

    def backend(graph, inputs):
        found.append(graph)
        return graph.forward

    monkeypatch.setattr(
        trainer, "compile_blocks", lambda model: compile_blocks(model, backend=backend)
    )
    torch._dynamo.reset()
    return found


@pytest.mark.extended
def test_a_sample_is_not_compiled(begin, graphs):
    """Its prompt and its tokens have other sizes, and at the end of a run another device: each has
    a graph of its own, which takes longer than the sample. 8 examples of validation are a batch.
    """
    words = ("trainer.compile=true", "trainer.max_steps=2", "trainer.limit_val_batches=1")
    code, folder = begin("run", *words, "trainer.val_every=1")
    assert code == 0 and (folder / "samples.csv").read_text().count("\n") >= 2
    assert len(graphs) == 4  # blocks and the loss, in training and in validation


@pytest.mark.extended
def test_the_shorter_batch_at_the_end_of_validation_is_not_compiled(begin, graphs, monkeypatch):
    rows = []
    step = EvaluatedTask.validation_step

    def recorded(task, batch, batch_idx):
        rows.append(num_rows(batch))
        step(task, batch, batch_idx)

    monkeypatch.setattr(EvaluatedTask, "validation_step", recorded)
    code, _ = begin("run", "trainer.compile=true", "trainer.max_steps=2", "data.batch_size=3")
    assert code == 0 and {*rows[:-1]} == {3} and rows[-1] < 3
    assert len(graphs) == 4  # blocks and the loss, in training and in validation
