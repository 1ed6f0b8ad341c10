"""The progress bar of a preparation, on stderr."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

DELAY = 1.0  # seconds before a progress bar appears


@contextmanager
def reading_progress(title: str, size: int) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Yields a function that yields texts, or pairs of texts, unchanged and counts their
    characters. The bar appears after DELAY if stderr is a terminal.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, markup=False)
    bar = Progress(console=console, transient=True)
    task = bar.add_task(title, total=size or None)
    start = time.monotonic()
    done = 0

    def counted(texts: Iterable[Any]) -> Iterator[Any]:
        nonlocal done
        for count, text in enumerate(texts):
            yield text
            done += len(text) if isinstance(text, str) else sum(map(len, text))
            if count % 256 == 0 or len(text) > 256:  # not after each short text
                if console.is_terminal and time.monotonic() - start > DELAY:
                    bar.start()
                bar.update(task, completed=done)

    try:
        yield counted
    finally:
        if bar.live.is_started:
            bar.stop()
