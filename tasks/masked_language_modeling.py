"""The Lightning module of masked language modeling."""

from typing import Any

import numpy as np
import torch

from tasks.evaluation import EvaluatedTask, Sample
from tasks.run.generation.infilling import MASK, text_with_holes

SAMPLE = 64  # tokens of the validation text that a sample shows


class InfillingTask(EvaluatedTask):
    """Its sample is the start of the validation text with holes, as the model fills them, and the
    original text.
    """

    def sample(self) -> Sample:
        first = self.data.prepared.valid[0]
        tokens = np.asarray(first["tokens"]).astype(np.int64)
        tokens = tokens[first["tokens.real"]] if "tokens.real" in first else tokens
        length = min(self.config["data"]["seq_len"], SAMPLE)
        generator = torch.Generator().manual_seed(0)  # the same holes at every step
        example = self.objective.example({"tokens": tokens[: length + 1]}, generator)
        with self.sampling(), torch.inference_mode():
            return self.fill(example)

    def fill(self, example: Any) -> Sample:
        """The sample of one example of the objective."""
        raise NotImplementedError


class MaskedLanguageModelingTask(InfillingTask):
    """In a sample every chosen token is masked, also those that training keeps or replaces."""

    def fill(self, example: Any) -> Sample:
        objective, chosen = self.objective, example["labels"] >= 0
        original = np.where(chosen, example["labels"], example["tokens"])
        masked = np.where(chosen, objective.tokenizer.special(MASK), original)
        filled = torch.tensor(masked, device=self.device)
        filled[torch.from_numpy(chosen)] = objective.likely(self.model, filled, 1)[1][:, 0]
        texts = (masked, filled.cpu().numpy(), original)
        return Sample(*(text_with_holes(objective, ids) for ids in texts))
