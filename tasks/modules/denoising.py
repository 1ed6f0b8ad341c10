"""The Lightning module of denoising: a source with corrupted spans, a target that restores them."""

from typing import Any

from tasks.generation.decoding import greedy_answer
from tasks.generation.infilling import text_with_holes
from tasks.modules.evaluation import Sample
from tasks.modules.masked_language_modeling import InfillingTask


class DenoisingTask(InfillingTask):
    """Denoising. In a sample the spans are generated greedily."""

    def fill_holes(self, example: Any) -> Sample:
        objective = self.objective
        source, target = example["source"][:-1], example["target"][1:-1]
        generated = greedy_answer(self, source, self.config["data"]["seq_len"])
        texts = (source, objective.restore(source, generated), objective.restore(source, target))
        return Sample(*(text_with_holes(objective, ids) for ids in texts))
