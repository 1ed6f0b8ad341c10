"""Examples of a text: windows of seq_len + 1 tokens, read from a memory map."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from xformer_kit.data.batch import Example
from xformer_kit.data.cache import MemoryMapped, memory_map
from xformer_kit.data.preparation.documents import document_numbers, starts_path
from xformer_kit.registry import config_error

UNIGRAM_TOKENS, CHUNK = 2**24, 2**20  # tokens that are counted, in all and at once


@dataclass(eq=False)
class Windows(MemoryMapped):
    """Example i holds the tokens i * seq_len to (i + 1) * seq_len, both included: neighbours share
    one token, so that every token after the first is predicted exactly once.

    pad: whether an incomplete last window is padded with id 0, with `real` False on padding, so
    that a loss is over all of the text; otherwise, for training, it is dropped. documents: if
    given, each token has the number of its document, and the first token of each is not predicted.
    Raises ConfigError if the text is shorter than one window.
    """

    dropped: ClassVar[dict[str, int]] = {}  # as in Pairs; windows drop nothing

    file: Path
    dtype: str
    tokens: int  # of the split
    bytes: int  # of utf-8 text, of all tokens that are predicted
    seq_len: int
    pad: bool
    documents: int | None = None  # number of separate documents; None: one text
    config_path: str = "data"  # config path of the corpus

    def __post_init__(self) -> None:
        if self.pad and self.tokens < 2:
            raise config_error(
                self.config_path,
                "the validation text must have at least 2 tokens",
                f"{self.tokens}",
                f"Give a longer text, or a larger {self.config_path}.valid.",
            )
        if not self.pad and self.tokens <= self.seq_len:
            fewer = f"Try {self.tokens - 1} or less, or give" if self.tokens > 1 else "Give"
            raise config_error(
                "data.seq_len",
                f"one window, seq_len + 1 = {self.seq_len + 1:,} tokens, must fit into the training"
                " text",
                f"a text of {self.tokens:,} tokens",
                f"{fewer} a longer text.",
            )
        predicted = self.tokens - 1
        self.length = -(-predicted // self.seq_len) if self.pad else predicted // self.seq_len
        _ = self.ids  # an open map stays valid after its file is removed

    @property
    def predicted(self) -> int:
        """Tokens that are predicted in all examples, each once."""
        last = self.tokens - 1 if self.pad else self.length * self.seq_len
        if self.documents is None:
            return last
        return last - int(((self.starts > 0) & (self.starts <= last)).sum())

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes per predicted token: bits per byte = nats per token / ln 2 / this."""
        return self.bytes / max(1, self.tokens - (self.documents or 1))

    @cached_property
    def ids(self) -> np.ndarray:
        """All token ids of the split, in their small type, memory-mapped."""
        return memory_map(self.file, self.dtype, self.tokens)

    @property
    def unigram_entropy(self) -> float:
        """-sum p log p in nats, with p the frequencies of the ids among the first UNIGRAM_TOKENS of
        the split: the loss of a model that has only these frequencies.
        """
        counts = np.zeros(0, np.int64)
        for start in range(0, min(self.tokens, UNIGRAM_TOKENS), CHUNK):
            found = np.bincount(self.ids[start : start + CHUNK], minlength=len(counts))
            found[: len(counts)] += counts
            counts = found
        share = counts[counts > 0] / counts.sum()
        return float(-(share * np.log(share)).sum())

    @cached_property
    def starts(self) -> np.ndarray:
        """The index of each document's first token: (documents,) int64, increasing from 0."""
        return memory_map(starts_path(self.file), "i8", self.documents or 0)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Example:
        """Returns {"tokens": (seq_len + 1,) int64}, for a padded window also {"tokens.real":
        (seq_len + 1,) bool}, and with documents {"tokens.document": (seq_len + 1,) int64}, counted
        from the first of the window.
        """
        i = range(self.length)[i]  # IndexError beyond the end; negative from the end
        start, end = i * self.seq_len, (i + 1) * self.seq_len + 1
        ids = self.ids[start:end]
        example: dict[str, np.ndarray] = {"tokens": ids.astype(np.int64)}
        if missing := end - start - len(ids):
            example["tokens"] = np.pad(example["tokens"], (0, missing))
            example["tokens.real"] = np.arange(end - start) < len(ids)
        if self.documents is not None:
            example["tokens.document"] = document_numbers(self.starts, start, end)
        return example
