"""What masked language models and denoisers have in common: the sample is a text with holes."""

from typing import Any

import numpy as np
import torch

from tasks.evaluation import EvaluatedTask, Sample

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
