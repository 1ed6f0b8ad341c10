"""Fills holes in texts with a masked language model or a denoising model. `<mask>` marks a hole,
for every tokenizer and objective.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tasks.generation.decoding import device_of, generate_answers
from tasks.generation.translation import check_length, encode_line, line_path
from xformer_kit.registry import config_error

MASK = "<mask>"
HOLE = re.compile(r"<mask>|<extra_id_(\d+)>")


class Candidates(NamedTuple):
    """The predictions of a masked language model for a text with holes."""

    text: str  # with the most likely token in each hole
    likely: list[list[tuple[str, float]]]  # per hole: (token, probability), the likeliest first


def text_with_holes(objective: Any, ids: np.ndarray) -> str:
    """Decodes ids to a text with holes as `<mask>` and other special tokens as their names."""
    tokenizer, text = objective.tokenizer, ""
    holes = {*getattr(objective, "holes", ()), MASK}
    adds_space = _words_include_space(tokenizer)
    names = tokenizer.special_names()
    is_special = np.isin(ids, list(names))
    # Each special token is a piece; so are the tokens between two of them.
    for piece in np.split(ids, np.flatnonzero(is_special[1:] | is_special[:-1]) + 1):
        if not len(piece):
            continue
        if (name := names.get(int(piece[0]))) is None:
            text += tokenizer.to_bytes(piece, continuation=bool(text)).decode("utf-8", "replace")
        else:
            if adds_space and text and not text[-1].isspace():
                text += " "
            text += MASK if name in holes else f"{name} "
    return text


def split_at_holes(objective: Any, text: str, where: str) -> tuple[str | None, list[np.ndarray]]:
    """Splits a user's text at its holes: returns the mode token that it begins with, if there is
    one, and the ids of each piece between holes.

    A hole is `<mask>`, or the next sentinel if the task has sentinels. If the tokenizer's words
    include the space before them, the space before a hole belongs to the hidden word, unless the
    token of a published model for it has no lstrip. Raises ConfigError for a text without holes and
    for sentinels that are not in order.
    """
    mode_token = next(
        (name for name in getattr(objective, "mode_tokens", ()) if text.startswith(name)), None
    )
    if mode_token:
        text = text.removeprefix(mode_token).lstrip(" ")
    holes = getattr(objective, "holes", (MASK,))
    matches = [match for match in HOLE.finditer(text) if match[0] in (MASK, *holes)]
    if not matches:
        raise config_error(
            where,
            f"must have a {MASK} where the model is to write",
            got="none",
            fix=f'Try "The {MASK} is".',
        )
    named = [None if match[1] is None else int(match[1]) for match in matches]
    ordered = all(name in (None, number) for number, name in enumerate(named))
    if not ordered or len(matches) > len(holes) > 1:
        rule = f"must have at most {len(holes)} holes: {MASK}, or sentinels in order, 0 first"
        raise config_error(where, rule, got=f"{len(matches)}, {matches[0][0]} first")
    bounds = [0, *(edge for match in matches for edge in match.span()), len(text)]
    pieces = [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    if _takes_space(objective.tokenizer, holes[0]):
        pieces = [piece.removesuffix(" ") for piece in pieces[:-1]] + pieces[-1:]
    empty = np.empty(0, np.int64)
    return mode_token, [
        encode_line(objective.tokenizer, piece, where) if piece else empty for piece in pieces
    ]


def _takes_space(tokenizer: Any, hole: str) -> bool:
    """Whether the space before a hole belongs to it: `lstrip` of its token in the file of a
    published tokenizer; else whether the tokens of words include the space before them.
    """
    if hole in tokenizer.published:
        return bool(tokenizer.added.get(tokenizer.published[hole], {}).get("lstrip"))
    return _words_include_space(tokenizer)


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
    objective, tokenizer, candidates = run.objective, run.objective.tokenizer, []
    text_of = lambda i: tokenizer.to_bytes([i], continuation=True).decode("utf-8", "replace")
    for number, line in enumerate(lines, 1):
        _, pieces = split_at_holes(objective, line, line_path(where, number, lines))
        ids = torch.from_numpy(objective.join_with_blanks(pieces)).to(device_of(run))
        probabilities, likely = objective.most_likely(run.model, ids, count)
        ids[ids == tokenizer.special(MASK)] = likely[:, 0]
        per_hole = [
            list(zip(map(text_of, hole_ids), hole_probabilities, strict=True))
            for hole_ids, hole_probabilities in zip(
                likely.tolist(), probabilities.tolist(), strict=True
            )
        ]
        candidates.append(Candidates(tokenizer.decode(ids.tolist()), per_hole))
    return candidates


def restore_spans(
    run: Any, lines: Sequence[str], where: str, **options: Any
) -> list[list[tuple[str, float | None]]]:
    """Fills the holes of texts with a denoising model: returns for each text its variants, each
    with the score of a beam search or None. options: those of `generate_answers`.
    """
    objective, examples = run.objective, []
    for number, line in enumerate(lines, 1):
        path = line_path(where, number, lines)
        mode_token, pieces = split_at_holes(objective, line, path)
        source = objective.join_with_blanks(pieces, mode_token)
        check_length(source, run.config["data"]["seq_len"], path)
        examples.append({"source": source, "target": source[:0]})
    answers = generate_answers(run, examples, **options)
    text = lambda source, ids: text_with_holes(objective, objective.restore(source, ids))
    return [
        [(text(example["source"], answer.ids), answer.score) for answer in variants]
        for example, variants in zip(examples, answers, strict=True)
    ]
