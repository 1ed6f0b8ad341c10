"""Writes files of token ids: of one text, or of documents that are encoded separately."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.tokenizer import Tokenizer


def write_text(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Writes the ids of one text; returns the numbers of tokens, of the text's bytes, without those
    of the first token, which is not predicted, and of dropped characters.
    """
    tokens = size = dropped = 0
    with cache.append_file(path) as append:
        for encoding in tokenizer.encode_all(texts):
            if tokens:
                size += encoding.bytes
            elif len(encoding.ids):
                size = encoding.bytes - int(encoding.sizes[0])
            tokens += len(encoding.ids)
            dropped += encoding.dropped
            append(encoding.ids.astype(tokenizer.dtype, copy=False))
    return {"tokens": tokens, "bytes": size, "dropped": dropped}


def write_documents(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Writes the ids of documents, concatenated, and the index of each document's first token, as
    int64.

    Returns the numbers of tokens, of documents that are not empty, of their bytes, without those of
    the first token of each document, which is not predicted, and of dropped characters.
    """
    tokens = size = dropped = 0
    starts: list[int] = []
    with cache.append_file(path) as append, cache.append_file(starts_path(path)) as append_starts:
        for encoding in map(tokenizer.encoding, texts):
            dropped += encoding.dropped
            if len(encoding.ids):
                starts.append(tokens)
                size += encoding.bytes - int(encoding.sizes[0])
                tokens += len(encoding.ids)
                append(encoding.ids.astype(tokenizer.dtype, copy=False))
        append_starts(np.array(starts, dtype=np.int64))
    counts = {"tokens": tokens, "bytes": size, "dropped": dropped}
    return counts | {"documents": len(starts)}


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
