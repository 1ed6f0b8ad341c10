"""The console of all tables and lines; control characters in printed values, which may come from
foreign runs, are removed.
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderHook, RenderResult
from rich.segment import Segment

from xformer_kit.registry.printable import printable


class _PrintableRenderable:
    """A renderable without control characters of its own; those of rich, for colours and the
    cursor, stay.
    """

    def __init__(self, renderable: RenderableType):
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else printable(text), style, control)


class _Cleaning(RenderHook):
    def process_renderables(self, renderables: Iterable[Any]) -> list[Any]:
        return [_PrintableRenderable(one) for one in renderables]


def screen(stderr: bool = False, width: int | None = None, **options: Any) -> Console:
    """A console that prints no control characters of a text. There is no markup, which a value such
    as [attn, ffn] would be taken for.
    """
    console = Console(stderr=stderr, highlight=False, markup=False, width=width, **options)
    console.push_render_hook(_Cleaning())
    return console
