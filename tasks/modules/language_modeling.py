"""The Lightning module of language modeling."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.distributed import all_reduce

from tasks import Metrics
from tasks.generation.decoding import batch_to_device
from tasks.modules.evaluation import EvaluatedTask, Sample
from tasks.process.ranks import DataRank

BATCH_SIZE = 64  # examples in a batch of the accuracy
PROMPT_TOKENS = 16  # of a sample
GENERATED_TOKENS = 96  # of a sample, at most


class LanguageModelingTask(EvaluatedTask):
    """Language modeling. A sample continues the first tokens of the validation text.

    If the examples have labels, two metrics are added: accuracy, the fraction of labelled tokens
    whose most likely prediction is correct, and sequence_accuracy, the fraction of examples in
    which all of them are. A sample is then the prediction of the last labelled tokens of an
    example.
    """

    def validation_metrics(self) -> Metrics:
        return self._accuracy("valid", *DataRank.of(self.trainer))

    def test_metrics(self) -> Metrics:
        if self.data.prepared.test is None:
            return {}
        return super().test_metrics() | self._accuracy("test", 0, 1)

    def _accuracy(self, split: str, rank: int, world: int) -> Metrics:
        """Returns accuracy and sequence_accuracy of a split, each rank computing its share of the
        batches, and as many batches as the others; {} if the examples have no labels.
        """
        examples = self.data.examples(split)
        if not len(examples) or "labels" not in examples[0]:
            return {}
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        counts = torch.zeros(4, dtype=dtype, device=self.device)
        with self.sampling():
            for first in range(0, len(examples), world * BATCH_SIZE):
                start = first + rank * BATCH_SIZE
                rows = range(start, min(start + BATCH_SIZE, len(examples)))
                batch = batch_to_device(self.device, [examples[i] for i in rows or range(1)])
                counts += count_correct(self.model, batch) * bool(rows)
        if world > 1:
            all_reduce(counts)
        correct, labelled, correct_examples, total = counts.tolist()
        return {"accuracy": correct / labelled, "sequence_accuracy": correct_examples / total}

    def sample(self, temperature: float = 0.8) -> Sample | None:
        windows, tokenizer = self.data.prepared.valid, self.data.prepared.tokenizer
        if "labels" in windows[0]:
            return self._labelled_sample([windows[i] for i in range(min(BATCH_SIZE, len(windows)))])
        tokens = torch.as_tensor(windows[0]["tokens"])[:PROMPT_TOKENS]
        max_seq_len: Any = self.model.max_seq_len
        prompt, max_new_tokens = fit_prompt(tokens, max_seq_len)
        prompt_ids = prompt.tolist()
        if not max_new_tokens:
            return Sample(tokenizer.decode(prompt_ids), "")
        ids = self._generate(prompt, max_new_tokens, temperature)
        new = tokenizer.to_bytes(ids[len(prompt_ids) :].tolist(), continuation=True)
        return Sample(tokenizer.decode(prompt_ids), new.decode("utf-8", "replace"))

    def _generate(
        self, prompt: torch.Tensor, max_new_tokens: int, temperature: float
    ) -> torch.Tensor:
        """Returns the prompt (t,) and at most `max_new_tokens` tokens after it."""
        with self.sampling():
            model: Any = self.model
            return model.generate(
                prompt[None].to(self.device), max_new_tokens=max_new_tokens, temperature=temperature
            )[0]

    def _labelled_sample(self, examples: Sequence[Mapping[str, np.ndarray]]) -> Sample:
        """The model's prediction of the last labelled tokens of the shortest example, from the
        tokens before them.
        """
        example = min(examples, key=lambda example: len(example["tokens"]))
        prompt, expected = split_last_answer(
            torch.as_tensor(example["tokens"]), torch.as_tensor(example["labels"]) >= 0
        )
        ids = self._generate(prompt, len(expected), 0.0)
        decode = self.data.prepared.tokenizer.decode
        return Sample(
            *(decode(tokens.tolist()) for tokens in (prompt, ids[len(prompt) :], expected))
        )


def split_last_answer(
    tokens: torch.Tensor, labelled: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (all tokens before the last run of labelled tokens, this run) of one example.

    tokens, labelled: (t,).
    """
    end = int(labelled.nonzero()[-1]) + 1
    start = int((~labelled[:end]).nonzero()[-1]) + 1
    return tokens[:start], tokens[start:end]


def count_correct(model: Any, batch: Any) -> torch.Tensor:
    """Returns (correct tokens, labelled tokens, examples that are all correct, examples) of a batch
    with labels.
    """
    inputs, _ = batch["tokens"].shifted()
    target = batch["labels"][:, 1:]
    labelled = target >= 0
    hidden, _ = model.hidden(inputs)
    wrong = torch.zeros_like(labelled)
    wrong[labelled] = model.head(hidden[labelled][None])[0].argmax(-1) != target[labelled]
    counts = (labelled & ~wrong).sum(), labelled.sum(), (~wrong.any(1)).sum()
    return torch.stack([*counts, torch.tensor(len(target), device=target.device)])


def fit_prompt(prompt: torch.Tensor, max_seq_len: int | None) -> tuple[torch.Tensor, int]:
    """Returns the prompt, cut to half of max_seq_len, and the number of tokens to generate."""
    if max_seq_len is None:
        return prompt, GENERATED_TOKENS
    prompt = prompt[: max(1, max_seq_len // 2)]
    return prompt, min(GENERATED_TOKENS, max_seq_len - len(prompt))
