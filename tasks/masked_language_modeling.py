"""The Lightning module of masked language modeling."""

from typing import Any

import numpy as np
import torch

from tasks.evaluation import Sample
from tasks.generation.infilling import MASK, text_with_holes
from tasks.infilling import InfillingTask


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
