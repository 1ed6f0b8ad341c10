"""The progress bar of a preparation, on stderr."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def reading_progress(title: str, size: int) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Yields a function that yields texts, or pairs of texts, unchanged and counts their
    characters. The bar appears if stderr is a terminal, and stays to the end of the context: a
    tokenizer learns after all texts are read.
    """
    from rich.console import Console
    from rich.control import Control, ControlType
    from rich.progress import Progress

    console = Console(stderr=True, markup=False)
    if console.is_terminal:  # in place of the stage of the run, which has no line end
        console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=size or None)

        def counted(texts: Iterable[Any]) -> Iterator[Any]:
            read = 0  # characters that the bar does not count yet
            for count, text in enumerate(texts):
                yield text
                read += len(text) if isinstance(text, str) else sum(map(len, text))
                if count % 256 == 0 or len(text) > 256:  # not after each short text
                    bar.advance(task, read)
                    read = 0
            bar.advance(task, read)
            bar.refresh()

        yield counted
