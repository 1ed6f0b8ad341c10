"""Generates answers to many examples, greedily, by beam search or sampled, in batches of similar
lengths.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tasks import Config, State

BATCH_SIZE = 64  # examples in a batch


class DecodedAnswer(NamedTuple):
    """The ids of an answer without its end token, and with a beam search its score (see
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


def device_of(run: Any) -> torch.device:
    return next(run.model.parameters()).device


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

    examples: {"source": ids, "target": ids} without special tokens. max_new_tokens: of an answer.
    seed: fixes the random numbers of each answer, independent of its batch. options: those of
    `generate`.
    """
    prompts = [run.objective.pair(example["source"], example["target"][:0]) for example in examples]
    order = sorted(range(len(prompts)), key=lambda i: _length(prompts[i]))
    answers: list[list[DecodedAnswer]] = [[]] * len(prompts)
    count = options.get("num_return", 1)
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
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
    return max(
        1, model.max_seq_len - (1 if "source" in prompt else int(prompt["tokens.prefix"].sum()))
    )


def _length(prompt: Any) -> int:
    return len(prompt["source"] if "source" in prompt else prompt["tokens"])


def generate_arguments(run: Any, prompts: Sequence[Any]) -> State:
    """Returns the arguments of `generate` and `beam_search` for prompts, each an `objective.pair`.

    Encoder-decoder: an answer begins with the token `start`. Otherwise it continues `ids`.
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
        found = (beams.lengths > 0).sum(1).tolist()
        rows, scores = (
            [row[:n] for row, n in zip(field, found, strict=True)] for field in (rows, scores)
        )
    else:
        count = options.get("num_return", 1)
        generated = run.model.generate(max_new_tokens=max_new_tokens, **arguments, **options)
        rows = generated[:, prompt_length:].unflatten(0, (-1, count)).tolist()
        scores = [[None] * count] * len(prompts)
    for texts, values in zip(rows, scores, strict=True):
        cut = [text[: text.index(end)] if end in text else text for text in texts]
        pairs = zip(cut, values, strict=True)
        yield [DecodedAnswer(np.array(text, dtype=np.int64), value) for text, value in pairs]
