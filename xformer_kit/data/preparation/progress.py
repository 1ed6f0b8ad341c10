"""The progress bar of a preparation, on stderr."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

DELAY = 1.0  # seconds before a progress bar appears


@contextmanager
def reading_progress(title: str, size: int) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Yields a function that yields texts, or pairs of texts, unchanged and counts their
    characters. The bar appears after DELAY if stderr is a terminal, and when all texts are read:
    a tokenizer learns afterwards.
    """
    from rich.console import Console
    from rich.control import Control, ControlType
    from rich.progress import Progress

    console = Console(stderr=True, markup=False)
    bar = Progress(console=console, transient=True)
    task = bar.add_task(title, total=size or None)
    start = time.monotonic()
    done = 0

    def appear() -> None:
        if console.is_terminal and not bar.live.is_started:
            # in place of the stage of the run, which has no line end
            console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            bar.start()

    def counted(texts: Iterable[Any]) -> Iterator[Any]:
        nonlocal done
        for count, text in enumerate(texts):
            yield text
            done += len(text) if isinstance(text, str) else sum(map(len, text))
            if count % 256 == 0 or len(text) > 256:  # not after each short text
                if time.monotonic() - start > DELAY:
                    appear()
                bar.update(task, completed=done)
        bar.update(task, completed=done)
        appear()

    try:
        yield counted
    finally:
        if bar.live.is_started:
            bar.stop()
