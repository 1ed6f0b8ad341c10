"""Progress of a preparation: a bar on stderr, driven by the text that passes through."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

PATIENCE = 1.0  # seconds before a progress bar appears
Text = TypeVar("Text", str, tuple[str, str])


class ReadingProgress:
    """Texts, or pairs of texts, pass through; the bar appears after PATIENCE if stderr is a
    terminal.
    """

    def __init__(self, title: str, size: int):
        self.title = title
        self.size = size
        self.done = 0
        self.shown: Any = None
        self.start = time.monotonic()

    def __enter__(self) -> "ReadingProgress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.shown is not None:
            self.shown.stop()

    def __call__(self, texts: Iterable[Text]) -> Iterator[Text]:
        for count, text in enumerate(texts):
            yield text
            self.done += len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
            if count % 256 == 0 or len(text) > 256:  # of short texts, not each
                self._show()

    def _show(self) -> None:
        if self.shown is None:
            if time.monotonic() - self.start < PATIENCE or not sys.stderr.isatty():
                return
            from rich.console import Console
            from rich.progress import Progress

            self.shown = Progress(console=Console(stderr=True, markup=False), transient=True)
            self.shown.start()
            self.bar = self.shown.add_task(self.title, total=self.size or None)
        self.shown.update(self.bar, completed=self.done)
