"""The rich console of all tables and lines. It removes control characters from printed values,
which may come from untrusted runs, and replaces characters that the output cannot encode.
"""

from collections.abc import Iterable
from typing import Any

from rich import console as rich_console
from rich.console import ConsoleOptions, RenderableType, RenderHook, RenderResult
from rich.segment import Segment

from xformer_kit.text.printable import printable


class Console(rich_console.Console):
    """A console that raises BrokenPipeError, where rich's exits with code 1."""

    def on_broken_pipe(self) -> None:
        """Called by rich in its handler of a BrokenPipeError."""
        raise BrokenPipeError


class _PrintableRenderable:
    """A renderable without the control characters of its text; those that rich adds for colours and
    the cursor remain.
    """

    def __init__(self, renderable: RenderableType):
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        encoding = options.encoding
        for text, style, control in console.render(self.renderable, options):
            shown = printable(text).encode(encoding, "replace").decode(encoding)
            yield Segment(text if control else shown, style, control)


class _RemoveControlCharacters(RenderHook):
    def process_renderables(self, renderables: Iterable[Any]) -> list[Any]:
        return list(map(_PrintableRenderable, renderables))


def create_console(stderr: bool = False, width: int | None = None, **options: Any) -> Console:
    """Returns a console that removes control characters and interprets no markup, so that a value
    such as [attn, ffn] is printed unchanged.
    """
    console = Console(stderr=stderr, highlight=False, markup=False, width=width, **options)
    console.push_render_hook(_RemoveControlCharacters())
    return console
