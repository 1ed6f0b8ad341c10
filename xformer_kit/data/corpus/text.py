"""The corpus of text files."""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from xformer_kit.data import files
from xformer_kit.data.corpus.base import CORPORA, Corpus
from xformer_kit.registry.messages import in_open_range


@CORPORA.register("text", also_called=("file", "files", "txt"))
@dataclass(kw_only=True, eq=False)
class Text(Corpus):
    """Text files in utf-8, one after the other in the order of their names.

    The first `1 - valid` of the characters are for training, the last `valid` for validation; 0.1
    is nanoGPT's split of tinyshakespeare. A line end is added between two files if the first does
    not end with one.
    """

    # a file such as book.txt, a directory (its *.txt, *.txt.gz, *.txt.zst), or a glob such as
    # 'corpus/**/*.txt'
    path: str
    valid: float = 0.1  # fraction of the characters, from the end

    @cached_property
    def files(self) -> list[Path]:
        return files.find(self.path, self.option_path("path"))

    @classmethod
    def check(cls, options, context):
        yield from in_open_range(options, "Try 0.1.", valid=(0, 1))
        yield from files.faults(options.path, "path")

    def stamp(self) -> list[Any]:
        return [*super().stamp(), files.stamp(self.files)]

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"valid {self.valid!r}\n".encode())
        for text in self._full_text():
            digest.update(text.encode())
        return digest.hexdigest()

    def size(self) -> int:
        return files.size(self.files)

    def texts(self, split: str) -> Iterator[str]:
        remaining = int(self._characters * (1 - self.valid))  # characters of the training split
        for text in self._full_text():
            if split == "train" and not remaining:
                return
            if piece := text[:remaining] if split == "train" else text[remaining:]:
                yield piece
            remaining -= min(remaining, len(text))

    def copies(self) -> dict[str, list[Any]]:
        """Returns {"valid": [number of its files that are copies of training files, number of its
        files, "files"]}, or {} if there are none.

        A file that is cut is in both splits, and is not counted as a copy of itself.
        """
        if len(self.files) == 1:
            return {}
        contents: list[bytes] = []
        ends: list[int] = []
        count = 0  # characters
        for file in self.files:
            digest = hashlib.sha256()
            for text in files.read(file):
                digest.update(text.encode())
                count += len(text)
            contents.append(digest.digest())
            ends.append(count)
        cut = int(count * (1 - self.valid))
        first, last = bisect_right(ends, cut), bisect_left(ends, cut)  # of valid, of training
        copied = [contents[i] in contents[: min(i, last + 1)] for i in range(first, len(ends))]
        return {"valid": [sum(copied), len(copied), "files"]} if any(copied) else {}

    def _full_text(self) -> Iterator[str]:
        """Yields all files as one text."""
        return files.joined(self.files, self.option_path("path"))

    @cached_property
    def _characters(self) -> int:
        return sum(map(len, self._full_text()))
