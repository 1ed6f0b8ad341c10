"""Examples of a text: windows of seq_len tokens and the one after them, read from a memory map."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from xformer_kit.data.cache import MapsFiles, mapped, reading
from xformer_kit.data.documents import numbered, read_starts
from xformer_kit.data.refused import refused


@dataclass(eq=False)
class Windows(MapsFiles):
    """Example i holds the tokens i * seq_len to (i + 1) * seq_len, both ends included: neighbours
    share one token.

    So every token after the first is predicted exactly once. For training an incomplete last window
    is dropped; with `whole` it is padded with id 0 and comes with `real`, False on padding, so that
    a loss is over the whole text. Of `documents` that are kept apart each token comes with the
    number of its own, and the first of each is not predicted. Raises ConfigError where the text is
    shorter than one window.
    """

    dropped: ClassVar[dict[str, int]] = {}  # as of Pairs: nothing

    file: Path
    dtype: str
    tokens: int  # of the whole split
    bytes: int  # of utf-8 text, of all tokens but the first ones, never predicted
    seq_len: int
    whole: bool
    documents: int | None = None  # number of separate documents; None: one text
    place: str = "data"  # config path of the corpus

    def __post_init__(self) -> None:
        if self.whole and self.tokens < 2:
            raise refused(
                self.place,
                "the validation text must have at least 2 tokens",
                f"{self.tokens}",
                f"Give a longer text, or a larger {self.place}.valid.",
            )
        if not self.whole and self.tokens <= self.seq_len:
            fewer = f"Try {self.tokens - 1} or less, or give" if self.tokens > 1 else "Give"
            raise refused(
                "data.seq_len",
                f"one window, seq_len + 1 = {self.seq_len + 1:,} tokens, must fit into the training"
                " text",
                f"a text of {self.tokens:,} tokens",
                f"{fewer} a longer text.",
            )
        predicted = self.tokens - 1
        self.length = -(-predicted // self.seq_len) if self.whole else predicted // self.seq_len
        _ = self.ids  # a map that is open outlives its file

    @property
    def predicted(self) -> int:
        """Tokens that are predicted in all examples, each once."""
        last = self.tokens - 1 if self.whole else self.length * self.seq_len
        if self.documents is None:
            return last
        return last - int(((self.starts > 0) & (self.starts <= last)).sum())

    @property
    def bytes_per_token(self) -> float:
        """Bits per byte = nats per token / ln 2 / bytes_per_token."""
        return self.bytes / max(1, self.tokens - (self.documents or 1))

    @cached_property
    def ids(self) -> np.ndarray:
        """All token ids of the split, of their small type, read as they are touched."""
        return mapped(self.file, self.dtype, self.tokens)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each document begins."""
        with reading(self.file):
            return read_starts(self.file)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        """{"tokens": (seq_len + 1,) int64}, for a padded window also {"tokens.real": (seq_len + 1,)
        bool}, and of documents {"tokens.document": (seq_len + 1,) int64}, counted from the window's
        first.
        """
        i = range(self.length)[i]  # IndexError beyond the end; negative from the end
        start, end = i * self.seq_len, (i + 1) * self.seq_len + 1
        ids = self.ids[start:end]
        example: dict[str, np.ndarray] = {"tokens": ids.astype(np.int64)}
        missing = self.seq_len + 1 - len(ids)
        if missing:
            example["tokens"] = np.pad(example["tokens"], (0, missing))
            example["tokens.real"] = np.arange(self.seq_len + 1) < len(ids)
        if self.documents is not None:
            example["tokens.document"] = numbered(self.starts, start, end)
        return example
