"""The Lightning module of language modeling."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.distributed import all_reduce

from tasks import Figures
from tasks.evaluation import EvaluatedTask, Sample
from tasks.run.generation.decoding import batch_on

ROWS = 64  # examples that are answered at once
PROMPT, WRITTEN = 16, 96  # tokens of a sample: given, and written by the model


class LanguageModelingTask(EvaluatedTask):
    """Its sample continues the first tokens of the validation text.

    If the examples have labels, the sample is the last answer of an example instead; accuracy is
    the share of labelled tokens whose most likely prediction is right, and sequence_accuracy the
    share of examples in which all of them are.
    """

    def measure(self) -> Figures:
        return self._accuracy("valid", self.trainer.global_rank, self.trainer.world_size)

    def final(self) -> Figures:
        return self._accuracy("test", 0, 1) if self.data.prepared.test is not None else {}

    def _accuracy(self, split: str, rank: int, world: int) -> Figures:
        examples = self.data.examples(split)
        if not len(examples) or "labels" not in examples[0]:
            return {}
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        hits = torch.zeros(4, dtype=dtype, device=self.device)
        with self.sampling():
            for start in range(rank * ROWS, len(examples), world * ROWS):
                rows = range(start, min(start + ROWS, len(examples)))
                batch = batch_on(self.device, [examples[i] for i in rows])
                hits += answered(self.model, batch)
        if world > 1:
            all_reduce(hits)
        right, asked, whole, rows = hits.tolist()
        return {"accuracy": right / asked, "sequence_accuracy": whole / rows}

    def sample(self, temperature: float = 0.8) -> Sample | None:
        windows, tokenizer = self.data.prepared.valid, self.data.prepared.tokenizer
        if "labels" in windows[0]:
            return self._answer([windows[i] for i in range(min(ROWS, len(windows)))])
        prompt = torch.as_tensor(windows[0]["tokens"])[:PROMPT]
        prompt, room = within(prompt, self.model.longest)  # type: ignore[arg-type]
        given = prompt.tolist()
        if not room:
            return Sample(tokenizer.decode(given), "")
        ids = self._written(prompt, room, temperature)
        whole, head = tokenizer.decode(ids.tolist()), tokenizer.decode(given)
        if whole.startswith(head):
            return Sample(head, whole[len(head) :])
        return Sample(head, tokenizer.decode(ids[len(given) :].tolist()))

    def _written(self, prompt: torch.Tensor, most: int, temperature: float) -> torch.Tensor:
        """A prompt (t,) and at most so many tokens after it."""
        given = prompt[None].to(self.device)
        with self.sampling():
            model: Any = self.model
            return model.generate(given, max_new_tokens=most, temperature=temperature)[0]

    def _answer(self, examples: Sequence[Mapping[str, np.ndarray]]) -> Sample:
        """The model's prediction of the last labelled tokens of the shortest example, from the
        tokens before them.
        """
        example = min(examples, key=lambda example: len(example["tokens"]))
        given, wanted = last_answer(
            torch.as_tensor(example["tokens"]), torch.as_tensor(example["labels"]) >= 0
        )
        ids, decode = self._written(given, len(wanted), 0.0), self.data.prepared.tokenizer.decode
        return Sample(
            *(decode(component.tolist()) for component in (given, ids[len(given) :], wanted))
        )


def last_answer(tokens: torch.Tensor, asked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The last run of labelled tokens, and all tokens before it; of an example, (t,) both."""
    end = int(asked.nonzero()[-1]) + 1
    start = int((~asked[:end]).nonzero()[-1]) + 1
    return tokens[:start], tokens[start:end]


def answered(model: Any, batch: Any) -> torch.Tensor:
    """(correct tokens, labelled tokens, examples that are all correct, examples) of a batch with
    labels.
    """
    seen, _ = batch["tokens"].shifted()
    target = batch["labels"][:, 1:]
    asked = target >= 0
    hidden, _ = model.hidden(seen)
    wrong = torch.zeros_like(asked)
    wrong[asked] = model.head(hidden[asked][None])[0].argmax(-1) != target[asked]
    counts = (asked & ~wrong).sum(), asked.sum(), (~wrong.any(1)).sum()
    return torch.stack([*counts, torch.tensor(len(target), device=target.device)])


def within(prompt: torch.Tensor, longest: int | None) -> tuple[torch.Tensor, int]:
    """The prompt, and the number of tokens that a model's positions allow after it."""
    if longest is None:
        return prompt, WRITTEN
    prompt = prompt[: max(1, longest // 2)]
    return prompt, min(WRITTEN, longest - len(prompt))
