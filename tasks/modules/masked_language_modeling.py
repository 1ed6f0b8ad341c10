"""The Lightning module of masked language modeling, and the base of tasks that fill holes."""

from typing import Any

import numpy as np
import torch

from tasks.generation.infilling import MASK, text_with_holes
from tasks.modules.evaluation import EvaluatedTask, Sample

SAMPLE_TOKENS = 64  # of the validation text


class InfillingTask(EvaluatedTask):
    """Base: a sample is the start of the validation text with holes, the text with the holes filled
    by the model, and the original text.
    """

    def sample(self) -> Sample:
        first = self.data.prepared.valid[0]
        tokens = np.asarray(first["tokens"]).astype(np.int64)
        tokens = tokens[first["tokens.real"]] if "tokens.real" in first else tokens
        length = min(self.config["data"]["seq_len"], SAMPLE_TOKENS)
        generator = torch.Generator().manual_seed(0)  # the same holes at every step
        example = self.objective.example({"tokens": tokens[: length + 1]}, generator)
        with self.sampling(), torch.inference_mode():
            return self.fill_holes(example)

    def fill_holes(self, example: Any) -> Sample:
        """Returns the sample of one example of the objective."""
        raise NotImplementedError


class MaskedLanguageModelingTask(InfillingTask):
    """Masked language modeling. In a sample every chosen token is masked, also the tokens that
    training keeps or replaces.
    """

    def fill_holes(self, example: Any) -> Sample:
        objective, chosen = self.objective, example["labels"] >= 0
        original = np.where(chosen, example["labels"], example["tokens"])
        masked = np.where(chosen, objective.tokenizer.special(MASK), original)
        filled = torch.tensor(masked, device=self.device)
        filled[torch.from_numpy(chosen)] = objective.most_likely(self.model, filled, 1)[1][:, 0]
        texts = (masked, filled.cpu().numpy(), original)
        return Sample(*(text_with_holes(objective, ids) for ids in texts))
