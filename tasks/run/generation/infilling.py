"""Texts with holes: `<mask>` marks what a model fills in, for every tokenizer and objective."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tasks.run.faults import refusal
from tasks.run.generation.decoding import decode_answers, device_of
from tasks.run.generation.translation import check_length, encoded_line, place

MASK = "<mask>"
HOLE = re.compile(r"<mask>|<extra_id_(\d+)>")


class Candidates(NamedTuple):
    """The predictions of a masked language model: the text with the most likely token in each hole,
    and the candidates of each hole.
    """

    text: str
    likely: list[list[tuple[str, float]]]  # of each hole (token, probability), the likeliest first


def text_with_holes(objective: Any, ids: np.ndarray) -> str:
    """A text with its holes as `<mask>`, and other special tokens by their names."""
    tokenizer, known, text = objective.tokenizer, objective.tokenizer.vocab_size, ""
    holes, gap = {*getattr(objective, "holes", ()), MASK}, _own_space(tokenizer)
    for run in np.split(ids, np.flatnonzero((ids[1:] >= known) | (ids[:-1] >= known)) + 1):
        if not len(run):
            continue
        if run[0] < known:
            text += tokenizer.to_bytes(run, goes_on=bool(text)).decode("utf-8", "replace")
        else:
            name = tokenizer.specials[int(run[0]) - known]
            text += " " * (gap and bool(text) and not text[-1].isspace()) + (
                MASK if name in holes else f"{name} "
            )
    return text


def pieces(objective: Any, text: str, where: str) -> tuple[str | None, list[np.ndarray]]:
    """A text that a user wrote -> the special token that it opens with, if any, and the ids between
    its holes.

    A hole is `<mask>`, or the next sentinel of a task that has them. The space before one belongs
    to the word that is hidden, where the tokenizer's words have theirs. Raises ConfigError for a
    text without holes, and for sentinels out of order.
    """
    opening = next(
        (name for name in getattr(objective, "openings", ()) if text.startswith(name)), None
    )
    if opening:
        text = text.removeprefix(opening).lstrip(" ")
    holes = getattr(objective, "holes", (MASK,))
    found = [match for match in HOLE.finditer(text) if match[0] == MASK or match[0] in holes]
    if not found:
        raise refusal(
            where,
            f"must have a {MASK} where the model is to write",
            got="none",
            fix=f'Try "The {MASK} is".',
        )
    if len(holes) > 1 and len(found) > len(holes):
        raise refusal(
            where,
            f"must have at most {len(holes)} holes, the sentinels of the run",
            got=len(found),
            fix="Split it.",
        )
    for at, match in enumerate(found):
        if match[1] is not None and int(match[1]) != at:
            raise refusal(
                where,
                "sentinels must come in order, <extra_id_0> first",
                got=f"{match[0]} as number {at}",
                fix=f"Or write {MASK}.",
            )
    bounds = [0, *(edge for match in found for edge in match.span()), len(text)]
    parts = [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    if _own_space(objective.tokenizer):
        parts = [part.removesuffix(" ") for part in parts[:-1]] + parts[-1:]
    empty = np.empty(0, np.int64)
    return opening, [
        encoded_line(objective.tokenizer, part, where) if part else empty for part in parts
    ]


def _own_space(tokenizer: Any) -> bool:
    """Whether words have the space before them as a part of their tokens."""
    return tokenizer.spaced or any(
        len(piece) > 1 and piece[:1] == b" " for piece in tokenizer.pieces()
    )


@torch.inference_mode()
def filled(run: Any, lines: Sequence[str], count: int, where: str) -> list[Candidates]:
    """Texts with holes -> the `count` likeliest tokens of each hole, of a masked language model."""
    objective, tokenizer, found = run.objective, run.objective.tokenizer, []
    for i, line in enumerate(lines, 1):
        _, parts = pieces(objective, line, place(where, i, lines))
        ids = torch.from_numpy(objective.blanked(parts)).to(device_of(run))
        p, likely = objective.likely(run.model, ids, count)
        ids[ids == tokenizer.special(MASK)] = likely[:, 0]
        words = [
            [tokenizer.to_bytes([j], goes_on=True).decode("utf-8", "replace") for j in row]
            for row in likely.tolist()
        ]
        pairs = [list(zip(*row, strict=True)) for row in zip(words, p.tolist(), strict=True)]
        found.append(Candidates(tokenizer.decode(ids.tolist()), pairs))
    return found


def restored(
    run: Any, lines: Sequence[str], where: str, **options: Any
) -> list[list[tuple[str, float | None]]]:
    """Texts with holes -> the texts with their spans written, each with the score of a search, of a
    denoiser.
    """
    objective, sources = run.objective, []
    for i, line in enumerate(lines, 1):
        opening, parts = pieces(objective, line, place(where, i, lines))
        sources.append(objective.blanked(parts, opening))
        check_length(sources[-1], run.config["data"]["seq_len"], place(where, i, lines))
    examples = [{"source": source, "target": source[:0]} for source in sources]
    found = decode_answers(run, examples, **options)
    text = lambda source, ids: text_with_holes(objective, objective.restored(source, ids))
    return [
        [(text(source, said.ids), said.score) for said in row]
        for source, row in zip(sources, found, strict=True)
    ]
