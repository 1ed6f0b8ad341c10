"""The Lightning module of denoising: a source with corrupted spans, a target that restores them."""

from typing import Any

from tasks.evaluation import Sample
from tasks.masked_language_modeling import InfillingTask
from tasks.run.generation.decoding import greedy_answer
from tasks.run.generation.infilling import text_with_holes


class DenoisingTask(InfillingTask):
    """Denoising. In a sample the spans are generated greedily."""

    def fill_holes(self, example: Any) -> Sample:
        objective = self.objective
        source, target = example["source"][:-1], example["target"][1:-1]
        generated = greedy_answer(self, source, self.config["data"]["seq_len"])
        texts = (source, objective.restore(source, generated), objective.restore(source, target))
        return Sample(*(text_with_holes(objective, ids) for ids in texts))
