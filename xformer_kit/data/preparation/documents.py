"""Writes files of token ids: of one text, or of documents that are encoded separately."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.tokenizer import Tokenizer


def write_tokens(
    path: Path, tokenizer: Tokenizer, texts: Iterable[str], by_document: bool
) -> dict[str, int]:
    """Writes the ids of one text in pieces or, with `by_document`, of documents, concatenated, and
    the index of each document's first token, as int64. With the tokenizer of a published model,
    a text or document has the tokens around it that the model reads.

    Returns the numbers of tokens, of the text's bytes, without those of a first token, which is not
    predicted, of dropped characters, of tokens for unknown text, and of documents that are not
    empty.
    """
    counts = dict.fromkeys(("tokens", "bytes", "dropped", "unknown"), 0)
    starts: list[int] = []
    encodings = map(tokenizer.encoding, texts) if by_document else tokenizer.encode_all(texts)
    before, after = (np.array(ids, tokenizer.dtype) for ids in tokenizer.around or ([], []))
    with cache.append_file(path) as append:

        def write(ids: np.ndarray) -> None:
            counts["tokens"] += len(ids)
            append(ids.astype(tokenizer.dtype, copy=False))

        for encoding in encodings:
            counts["dropped"] += encoding.dropped
            if by_document or not starts:
                if not len(encoding.ids):
                    continue
                starts.append(counts["tokens"])
                write(before)
                counts["bytes"] -= 0 if len(before) else int(encoding.sizes[0])
            counts["bytes"] += encoding.bytes
            counts["unknown"] += tokenizer.count_unknown(encoding.ids)
            write(encoding.ids)
            if by_document:
                write(after)
        if starts and not by_document:
            write(after)
    if by_document:
        with cache.append_file(starts_path(path)) as append_starts:
            append_starts(np.array(starts, dtype=np.int64))
        counts["documents"] = len(starts)
    return counts


def starts_path(path: Path) -> Path:
    """Returns the path of the file with the indices of the documents' first tokens."""
    return path.with_suffix(".starts")


def document_numbers(starts: np.ndarray, start: int, end: int) -> np.ndarray:
    """Returns the number of the document of each of the tokens start .. end - 1, counted from that
    of token `start`: int64.
    """
    numbers = np.searchsorted(starts, np.arange(start, end), side="right")
    return numbers - numbers[0]
