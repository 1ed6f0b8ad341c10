"""Files of token ids: one text, or documents that are encoded one by one, with their beginnings."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.tokenizer import Tokenizer


def write_text(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Write the ids of one text; counts the tokens, and the bytes of all but the first token."""
    tokens = size = 0
    with cache.appending(path) as append:
        for ids in tokenizer.encode_all(texts):
            size += tokenizer.count_bytes(ids if tokens else ids[1:], goes_on=True)
            tokens += len(ids)
            append(ids.astype(tokenizer.dtype, copy=False))
    return {"tokens": tokens, "bytes": size}


def write_documents(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Write the ids of documents one after the other, and the number of the token that each begins
    with, as int64.

    Counts the tokens, the documents that have any, and the bytes of all tokens but the first of
    each document, which no token of its own predicts.
    """
    tokens = size = 0
    starts: list[int] = []
    with cache.appending(path) as append, cache.appending(starts_of(path)) as append_starts:
        for text in texts:
            ids = tokenizer.encode(text)
            if len(ids):
                starts.append(tokens)
                size += tokenizer.count_bytes(ids) - tokenizer.count_bytes(ids[:1])
                tokens += len(ids)
                append(ids.astype(tokenizer.dtype, copy=False))
        append_starts(np.array(starts, dtype=np.int64))
    return {"tokens": tokens, "bytes": size, "documents": len(starts)}


def starts_of(path: Path) -> Path:
    """The file with the places where the documents of a file of ids begin."""
    return path.with_suffix(".starts")


def read_starts(path: Path) -> np.ndarray:
    """Where each document of a file of ids begins: (documents,) int64, increasing, the first 0."""
    return np.fromfile(starts_of(path), dtype=np.int64)


def numbered(starts: np.ndarray, start: int, end: int) -> np.ndarray:
    """For each of the tokens start .. end - 1, the number of its document, counted from that of the
    first: int64.
    """
    found = np.searchsorted(starts, np.arange(start, end), side="right")
    return found - found[0]
