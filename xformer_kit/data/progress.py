"""The progress bar of a preparation, on stderr."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

DELAY = 1.0  # seconds before a progress bar appears
Text = TypeVar("Text", str, tuple[str, str])


class ReadingProgress:
    """Counts the characters of texts, or pairs of texts, that pass through. The bar appears after
    DELAY if stderr is a terminal.
    """

    def __init__(self, title: str, size: int):
        self.title = title
        self.size = size
        self.done = 0
        self.progress: Any = None
        self.start = time.monotonic()

    def __enter__(self) -> "ReadingProgress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.progress is not None:
            self.progress.stop()

    def __call__(self, texts: Iterable[Text]) -> Iterator[Text]:
        for count, text in enumerate(texts):
            yield text
            self.done += len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
            if count % 256 == 0 or len(text) > 256:  # not after each short text
                self._show()

    def _show(self) -> None:
        if self.progress is None:
            if time.monotonic() - self.start < DELAY or not sys.stderr.isatty():
                return
            from rich.console import Console
            from rich.progress import Progress

            self.progress = Progress(console=Console(stderr=True, markup=False), transient=True)
            self.progress.start()
            self.bar = self.progress.add_task(self.title, total=self.size or None)
        self.progress.update(self.bar, completed=self.done)
