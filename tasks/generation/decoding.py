"""Generates answers to many examples, greedily, by beam search or sampled, in batches of similar
lengths.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tasks import Config, State

BATCH_SIZE = 64  # examples


class DecodedAnswer(NamedTuple):
    """The ids of an answer without its end token, and its score in a beam search (see
    `generate.Beams`).
    """

    ids: np.ndarray
    score: float | None = None


@dataclass(eq=False)
class LoadedRun:
    """A run's trained model on its device, with its objective and config.

    A Task has the attributes `model`, `objective` and `config` too: most functions of this folder
    accept either.
    """

    model: Any
    objective: Any
    config: Config
    path: Path
    checkpoint: str  # file name of the checkpoint
    data_fingerprint: str | None  # in the checkpoint


def device_of(run: Any) -> torch.device:
    """The device of a run's model."""
    return next(run.model.parameters()).device


@contextmanager
def in_precision(run: Any) -> Iterator[Any]:
    """A context with the run's model in its precision, without gradients."""
    from xformer_kit.inspect.memory import autocast, precision, weights_dtype

    model = run.model.to(weights_dtype(run.config))
    with torch.inference_mode(), autocast(precision(run.config), device_of(run).type):
        yield model


def batch_to_device(device: torch.device, examples: Sequence[Any]) -> Any:
    """Collates examples into a batch on a device."""
    from xformer_kit.data.batch import collate, map_tensors

    return map_tensors(collate(examples), lambda x: x.to(device))


def first_answers(run: Any, examples: Sequence[Any], **options: Any) -> list[np.ndarray]:
    """Returns the ids of the first answer to each example, without the end token; arguments as in
    `generate_answers`.
    """
    return [answers[0].ids for answers in generate_answers(run, examples, **options)]


def greedy_answer(run: Any, source: np.ndarray, max_new_tokens: int) -> np.ndarray:
    """Returns the ids of the greedy answer to one source, without the end token."""
    example = {"source": source, "target": source[:0]}
    return first_answers(run, [example], max_new_tokens=max_new_tokens, temperature=0.0)[0]


def generate_answers(
    run: Any,
    examples: Sequence[Any],
    *,
    max_new_tokens: int,
    batch_size: int = BATCH_SIZE,
    seed: int | None = None,
    **options: Any,
) -> list[list[DecodedAnswer]]:
    """Returns `num_return` answers to each example, the best first if they have scores.

    examples: {"source": ids, "target": ids} without special tokens; the targets have no effect.
    max_new_tokens: of one answer. seed: makes the random numbers of each answer independent of its
    batch. options: those of `generate` and `beam_search`.
    """
    prompts = [run.objective.pair(example["source"], example["target"][:0]) for example in examples]
    by_length = sorted(range(len(prompts)), key=lambda i: _prompt_length(prompts[i]))
    answers: list[list[DecodedAnswer]] = [[]] * len(prompts)
    count = options.get("num_return", 1)
    for start in range(0, len(by_length), batch_size):
        indices = by_length[start : start + batch_size]
        max_new_tokens = min(max_new_tokens, max_answer_tokens(run.model, prompts[indices[-1]]))
        if seed is not None:
            options["seed"] = [seed + i * count + j for i in indices for j in range(count)]
        batch = _generate_batch(run, [prompts[i] for i in indices], max_new_tokens, options)
        for i, batch_answers in zip(indices, batch, strict=True):
            answers[i] = batch_answers
    return answers


def max_answer_tokens(model: Any, prompt: Any) -> int:
    """Returns the number of tokens that the model's positions support after a prompt."""
    if model.max_seq_len is None:
        return 2**31
    prompt_length = 1 if "source" in prompt else int(prompt["tokens.prefix"].sum())
    return max(1, model.max_seq_len - prompt_length)


def _prompt_length(prompt: Any) -> int:
    return len(prompt["source"] if "source" in prompt else prompt["tokens"])


def generate_arguments(run: Any, prompts: Sequence[Any]) -> State:
    """Returns the arguments of `generate` and `beam_search` for prompts, each an `objective.pair`:
    with an encoder `source` and the first token `start` of an answer, otherwise `ids` that the
    answer continues; and the token `end` of an answer.
    """
    start, end = map(run.objective.tokenizer.special, run.objective.specials[:2])
    device = device_of(run)
    if "source" in prompts[0]:
        source = batch_to_device(device, [{"source": p["source"]} for p in prompts])["source"]
        return {"source": source.ids, "source_real": source.real, "start": start, "end": end}
    prefixes = [torch.as_tensor(p["tokens"][p["tokens.prefix"]]).long() for p in prompts]
    pad = lambda rows: pad_sequence(rows, batch_first=True, padding_side="left").to(device)
    real = pad([torch.ones_like(ids, dtype=torch.bool) for ids in prefixes])
    return {"ids": pad(prefixes), "real": None if bool(real.all()) else real, "end": end}


def _generate_batch(
    run: Any, prompts: Sequence[Any], max_new_tokens: int, options: State
) -> Iterator[list[DecodedAnswer]]:
    """Yields the answers to each prompt."""
    from xformer_kit.generate import beam_search

    arguments = generate_arguments(run, prompts)
    end = arguments["end"]
    prompt_length = arguments["ids"].shape[1] if "ids" in arguments else 1
    if options.get("beam") is not None:
        beams = beam_search(run.model, max_new_tokens=max_new_tokens, **arguments, **options)
        rows, scores = beams.ids[..., prompt_length:].tolist(), beams.scores.tolist()
        # A small vocabulary may have fewer texts than requested.
        counts = (beams.lengths > 0).sum(1).tolist()
    else:
        count = options.get("num_return", 1)
        generated = run.model.generate(max_new_tokens=max_new_tokens, **arguments, **options)
        rows = generated[:, prompt_length:].unflatten(0, (-1, count)).tolist()
        scores = [[None] * count] * len(prompts)
        counts = [count] * len(prompts)
    for answers, answer_scores, count in zip(rows, scores, counts, strict=True):
        yield [
            DecodedAnswer(np.array([*takewhile(lambda i: i != end, ids)], dtype=np.int64), score)
            for ids, score in zip(answers[:count], answer_scores, strict=False)
        ]
