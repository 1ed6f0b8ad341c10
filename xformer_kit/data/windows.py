"""Examples of a text: windows of seq_len tokens and the one after them, read from a memory map."""

from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data.cache import mapped, reading
from xformer_kit.data.documents import numbered, read_starts
from xformer_kit.registry import ConfigError, Fault


class Windows:
    """Example i holds the tokens i * seq_len to (i + 1) * seq_len, both ends included: neighbours
    share one token.

    So every token after the first is predicted exactly once. For training an incomplete last window
    is dropped; with `whole` it is padded with id 0 and comes with `real`, False on padding, so that
    a loss is over the whole text. Of `documents` that are kept apart each token comes with the
    number of its own, and the first of each is not predicted. Raises ConfigError where the text is
    shorter than one window.
    """

    def __init__(
        self,
        file: Path,
        dtype: str,
        tokens: int,
        bytes: int,
        seq_len: int,
        whole: bool,
        documents: int | None = None,
    ):
        self.file = file
        self.dtype = dtype
        self.seq_len = seq_len
        self.whole = whole
        self.tokens = tokens  # of the whole split
        self.bytes = bytes  # of utf-8 text, of all tokens but the first ones, never predicted
        self.documents = documents  # number of separate documents; None: one text
        if seq_len < 1:
            raise ConfigError(
                Fault("data.seq_len", "must be at least 1 token", got=f"{seq_len}", fix="Try 256.")
            )
        if tokens < (2 if whole else seq_len + 1):
            raise ConfigError(self._too_short())
        predicted = tokens - 1
        self.length = -(-predicted // seq_len) if whole else predicted // seq_len
        self._ids: np.ndarray | None = None  # opened again in each loader worker
        self._starts: np.ndarray | None = None
        _ = self.ids  # a map that is open outlives its file

    def _too_short(self) -> Fault:
        if self.whole:
            return Fault(
                "data",
                "the validation text must have at least 2 tokens",
                got=f"{self.tokens}",
                fix="Give a longer text, or a larger data.valid.",
            )
        longer = "give a longer text."
        return Fault(
            "data.seq_len",
            f"one window, seq_len + 1 = {self.seq_len + 1:,} tokens, must fit into the training"
            " text",
            got=f"a text of {self.tokens:,} tokens",
            fix=(
                f"Try {self.tokens - 1} or less, or {longer}"
                if self.tokens > 1
                else longer.capitalize()
            ),
        )

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

    @property
    def ids(self) -> np.ndarray:
        """All token ids of the split, of their small type, read as they are touched."""
        if self._ids is None:
            self._ids = mapped(self.file, self.dtype, self.tokens)
        return self._ids

    @property
    def starts(self) -> np.ndarray:
        """Where each document begins."""
        if self._starts is None:
            with reading(self.file):
                self._starts = read_starts(self.file)
        return self._starts

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

    def __getstate__(self) -> dict[str, Any]:
        # a loader worker maps the files again, not a copy
        return self.__dict__ | {"_ids": None, "_starts": None}
