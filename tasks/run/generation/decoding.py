"""Greedy, beam or sampled answers to many examples, in batches of similar lengths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tasks import Config, State

ROWS = 64  # examples that are answered at once


class DecodedAnswer(NamedTuple):
    """One answer: its ids without the end, and with a beam search its score (see
    `generate.Beams`).
    """

    ids: np.ndarray
    score: float | None = None


@dataclass(eq=False)
class LoadedRun:
    """A run's trained model on its device, with the objective of its config. A Task has these
    attributes too: functions of this folder take either.
    """

    model: Any
    objective: Any
    config: Config
    path: Path
    checkpoint: str  # its name


def device_of(run: Any) -> torch.device:
    return next(run.model.parameters()).device


def batch_on(device: torch.device, examples: Sequence[Any]) -> Any:
    """A batch of examples on a device."""
    from xformer_kit.data.batch import collate, mapped

    return mapped(collate(examples), lambda x: x.to(device))


def answers(run: Any, examples: Sequence[Any], **options: Any) -> list[np.ndarray]:
    """The ids of the first answer to each example, without the end, in the order of the examples;
    arguments as in `decode_answers`.
    """
    return [found[0].ids for found in decode_answers(run, examples, **options)]


def answer(run: Any, source: np.ndarray, most: int) -> np.ndarray:
    """The ids of the greedy answer to one source, without the end."""
    example = {"source": source, "target": source[:0]}
    return answers(run, [example], most=most, temperature=0.0)[0]


def decode_answers(
    run: Any,
    examples: Sequence[Any],
    *,
    most: int,
    rows: int = ROWS,
    seed: int | None = None,
    **options: Any,
) -> list[list[DecodedAnswer]]:
    """The `num_return` answers to each example, the best first if they have scores.

    examples: {"source": ids, "target": ids} without special tokens. most: tokens of an answer.
    seed: fixes the random numbers of each answer, independent of its batch. `options` are those of
    `generate`.
    """
    prompts = [run.objective.pair(example["source"], example["target"][:0]) for example in examples]
    order = sorted(range(len(prompts)), key=lambda i: _length(prompts[i]))
    found: list[list[DecodedAnswer]] = [[]] * len(prompts)
    count = options.get("num_return", 1)
    for start in range(0, len(order), rows):
        some = order[start : start + rows]
        most = min(most, room(run.model, prompts[some[-1]]))
        if seed is not None:
            options["seed"] = [seed + i * count + j for i in some for j in range(count)]
        batch = _batch(run, [prompts[i] for i in some], most, options)
        for i, made in zip(some, batch, strict=True):
            found[i] = made
    return found


def room(model: Any, prompt: Any) -> int:
    """Number of tokens that the model's positions allow after a prompt."""
    if model.longest is None:
        return 2**31
    return max(1, model.longest - (1 if "source" in prompt else int(prompt["tokens.prefix"].sum())))


def _length(prompt: Any) -> int:
    return len(prompt["source"] if "source" in prompt else prompt["tokens"])


def asked(run: Any, prompts: Sequence[Any]) -> State:
    """Arguments of `generate` and `beam_search` that answer prompts, which are `objective.pair`s;
    without ids, `start` is the first token of an answer, else the answer follows the ids.
    """
    start, end = map(run.objective.tokenizer.special, run.objective.specials[:2])
    device = device_of(run)
    if "source" in prompts[0]:
        source = batch_on(device, [{"source": p["source"]} for p in prompts])["source"]
        return {"source": source.ids, "source_real": source.real, "start": start, "end": end}
    given = [torch.as_tensor(p["tokens"][p["tokens.prefix"]]).long() for p in prompts]
    padded = lambda rows: pad_sequence(rows, batch_first=True, padding_side="left").to(device)
    real = padded([torch.ones_like(ids, dtype=torch.bool) for ids in given])
    return {"ids": padded(given), "real": None if bool(real.all()) else real, "end": end}


def _batch(
    run: Any, prompts: Sequence[Any], most: int, options: State
) -> Iterator[list[DecodedAnswer]]:
    from xformer_kit.generate import beam_search

    given = asked(run, prompts)
    end, skip = given["end"], given["ids"].shape[1] if "ids" in given else 1
    if options.get("beam") is not None:
        beams = beam_search(run.model, max_new_tokens=most, **given, **options)
        rows, scores = beams.ids[..., skip:].tolist(), beams.scores.tolist()
        # A small vocabulary may have fewer texts than requested.
        there = (beams.lengths > 0).sum(1).tolist()
        rows, scores = (
            [row[:n] for row, n in zip(field, there, strict=True)] for field in (rows, scores)
        )
    else:
        count = options.get("num_return", 1)
        ids = run.model.generate(max_new_tokens=most, **given, **options)[:, skip:]
        rows, scores = ids.unflatten(0, (-1, count)).tolist(), [[None] * count] * len(prompts)
    for texts, values in zip(rows, scores, strict=True):
        cut = [text[: text.index(end)] if end in text else text for text in texts]
        pairs = zip(cut, values, strict=True)
        yield [DecodedAnswer(np.array(text, dtype=np.int64), value) for text, value in pairs]
