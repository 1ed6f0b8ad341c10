"""Writes files of token ids: of one text, or of documents that are encoded separately."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.tokenizer import Tokenizer


def write_text(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Writes the ids of one text; returns the numbers of tokens and of bytes, without the bytes of
    the first token, which is not predicted.
    """
    tokens = size = 0
    with cache.append_file(path) as append:
        for ids in tokenizer.encode_all(texts):
            size += tokenizer.count_bytes(ids if tokens else ids[1:], continuation=True)
            tokens += len(ids)
            append(ids.astype(tokenizer.dtype, copy=False))
    return {"tokens": tokens, "bytes": size}


def write_documents(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Writes the ids of documents, concatenated, and the index of each document's first token, as
    int64.

    Returns the numbers of tokens, of documents that are not empty, and of bytes, without the bytes
    of the first token of each document, which is not predicted.
    """
    tokens = size = 0
    starts: list[int] = []
    with cache.append_file(path) as append, cache.append_file(starts_path(path)) as append_starts:
        for text in texts:
            ids = tokenizer.encode(text)
            if len(ids):
                starts.append(tokens)
                size += tokenizer.count_bytes(ids) - tokenizer.count_bytes(ids[:1])
                tokens += len(ids)
                append(ids.astype(tokenizer.dtype, copy=False))
        append_starts(np.array(starts, dtype=np.int64))
    return {"tokens": tokens, "bytes": size, "documents": len(starts)}


def starts_path(path: Path) -> Path:
    """Returns the path of the file with the indices of the documents' first tokens."""
    return path.with_suffix(".starts")


def read_starts(path: Path) -> np.ndarray:
    """Returns the index of each document's first token: (documents,) int64, increasing from 0."""
    return np.fromfile(starts_path(path), dtype=np.int64)


def document_numbers(starts: np.ndarray, start: int, end: int) -> np.ndarray:
    """Returns the number of the document of each of the tokens start .. end - 1, counted from that
    of token `start`: int64.
    """
    numbers = np.searchsorted(starts, np.arange(start, end), side="right")
    return numbers - numbers[0]
