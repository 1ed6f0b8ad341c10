"""Texts with holes: `<mask>` marks where a model fills in text, for every tokenizer and
objective.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tasks.run.generation.decoding import device_of, generate_answers
from tasks.run.generation.translation import check_length, encode_line, line_path
from xformer_kit.registry import config_error

MASK = "<mask>"
HOLE = re.compile(r"<mask>|<extra_id_(\d+)>")


class Candidates(NamedTuple):
    """The predictions of a masked language model: the text with the most likely token in each hole,
    and the candidates of each hole.
    """

    text: str
    likely: list[list[tuple[str, float]]]  # per hole: (token, probability), the likeliest first


def text_with_holes(objective: Any, ids: np.ndarray) -> str:
    """Decodes ids to a text with holes as `<mask>` and other special tokens as their names."""
    tokenizer, known, text = objective.tokenizer, objective.tokenizer.vocab_size, ""
    holes, gap = {*getattr(objective, "holes", ()), MASK}, _words_include_space(tokenizer)
    for run in np.split(ids, np.flatnonzero((ids[1:] >= known) | (ids[:-1] >= known)) + 1):
        if not len(run):
            continue
        if run[0] < known:
            text += tokenizer.to_bytes(run, continuation=bool(text)).decode("utf-8", "replace")
        else:
            name = tokenizer.specials[int(run[0]) - known]
            text += " " * (gap and bool(text) and not text[-1].isspace()) + (
                MASK if name in holes else f"{name} "
            )
    return text


def split_at_holes(objective: Any, text: str, where: str) -> tuple[str | None, list[np.ndarray]]:
    """Splits a user's text at its holes: returns the special token that it begins with, if there is
    one, and the ids of each piece between holes.

    A hole is `<mask>`, or the next sentinel if the task has sentinels. If the tokenizer's words
    include the space before them, the space before a hole belongs to the hidden word. Raises
    ConfigError for a text without holes and for sentinels that are not in order.
    """
    opening = next(
        (name for name in getattr(objective, "mode_tokens", ()) if text.startswith(name)), None
    )
    if opening:
        text = text.removeprefix(opening).lstrip(" ")
    holes = getattr(objective, "holes", (MASK,))
    found = [match for match in HOLE.finditer(text) if match[0] == MASK or match[0] in holes]
    if not found:
        raise config_error(
            where,
            f"must have a {MASK} where the model is to write",
            got="none",
            fix=f'Try "The {MASK} is".',
        )
    if len(holes) > 1 and len(found) > len(holes):
        raise config_error(
            where,
            f"must have at most {len(holes)} holes, the sentinels of the run",
            got=len(found),
            fix="Split it.",
        )
    for at, match in enumerate(found):
        if match[1] is not None and int(match[1]) != at:
            raise config_error(
                where,
                "sentinels must come in order, <extra_id_0> first",
                got=f"{match[0]} as number {at}",
                fix=f"Or write {MASK}.",
            )
    bounds = [0, *(edge for match in found for edge in match.span()), len(text)]
    parts = [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    if _words_include_space(objective.tokenizer):
        parts = [part.removesuffix(" ") for part in parts[:-1]] + parts[-1:]
    empty = np.empty(0, np.int64)
    return opening, [
        encode_line(objective.tokenizer, part, where) if part else empty for part in parts
    ]


def _words_include_space(tokenizer: Any) -> bool:
    """Whether the tokens of words include the space before them."""
    return tokenizer.spaced or any(
        len(piece) > 1 and piece[:1] == b" " for piece in tokenizer.pieces()
    )


@torch.inference_mode()
def fill_masks(run: Any, lines: Sequence[str], count: int, where: str) -> list[Candidates]:
    """Fills the holes of texts with a masked language model; returns the `count` likeliest tokens
    of each hole.
    """
    objective, tokenizer, found = run.objective, run.objective.tokenizer, []
    for i, line in enumerate(lines, 1):
        _, parts = split_at_holes(objective, line, line_path(where, i, lines))
        ids = torch.from_numpy(objective.join_with_blanks(parts)).to(device_of(run))
        p, likely = objective.most_likely(run.model, ids, count)
        ids[ids == tokenizer.special(MASK)] = likely[:, 0]
        words = [
            [tokenizer.to_bytes([j], continuation=True).decode("utf-8", "replace") for j in row]
            for row in likely.tolist()
        ]
        pairs = [list(zip(*row, strict=True)) for row in zip(words, p.tolist(), strict=True)]
        found.append(Candidates(tokenizer.decode(ids.tolist()), pairs))
    return found


def restore_spans(
    run: Any, lines: Sequence[str], where: str, **options: Any
) -> list[list[tuple[str, float | None]]]:
    """Fills the holes of texts with a denoising model: returns for each text its variants, each
    with the score of a beam search or None.
    """
    objective, sources = run.objective, []
    for i, line in enumerate(lines, 1):
        opening, parts = split_at_holes(objective, line, line_path(where, i, lines))
        sources.append(objective.join_with_blanks(parts, opening))
        check_length(sources[-1], run.config["data"]["seq_len"], line_path(where, i, lines))
    examples = [{"source": source, "target": source[:0]} for source in sources]
    found = generate_answers(run, examples, **options)
    text = lambda source, ids: text_with_holes(objective, objective.restore(source, ids))
    return [
        [(text(source, answer.ids), answer.score) for answer in row]
        for source, row in zip(sources, found, strict=True)
    ]
