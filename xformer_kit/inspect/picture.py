"""A picture for notebooks and files; no display is needed."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xformer_kit.inspect.style import plot_style, require_matplotlib
from xformer_kit.registry import config_error
from xformer_kit.text.user_path import user_path

# format -> the entry of its metadata that differs between versions or dates
FORMATS = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
DPI = 150  # pixels per inch, of PNG


class Picture:
    """A matplotlib figure, `figure`, that notebooks show and `save` writes.

    `draw` is called with an empty figure. The same picture saved twice gives the same bytes. note:
    the text below the panels, which a command prints, too.
    """

    def __init__(self, width: float, height: float, draw: Callable[[Any], None], note: str = ""):
        require_matplotlib()
        self.note = note
        with plot_style():
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure

            self.figure = Figure(figsize=(width, height), layout="constrained")
            FigureCanvasAgg(self.figure)
            draw(self.figure)

    def save(self, path: str | Path) -> Path:
        """Writes the picture as .png, .svg or .pdf and returns the path. Raises ConfigError for
        another ending, and if the file cannot be written.
        """
        path = user_path(path)
        data = self.encoded(picture_format(path))
        try:
            path.write_bytes(data)
        except OSError as error:
            raise config_error(
                path,
                f"cannot be written: {error.strerror}",
                fix="Name a file in a folder that is there.",
            ) from None
        return path

    def encoded(self, kind: str = "png") -> bytes:
        """The content of a file of that format."""
        file = io.BytesIO()
        with plot_style(salt="xformer"):
            self.figure.savefig(
                file,
                format=kind,
                dpi=DPI,
                bbox_inches="tight",
                pad_inches=0.08,
                metadata={FORMATS[kind]: None},
            )
        return file.getvalue()

    def _repr_png_(self) -> bytes:
        return self.encoded("png")


def picture_format(path: Path) -> str:
    """The format of a picture's file, from its ending. Raises ConfigError for an unknown one."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise config_error(
            path,
            f"must end in one of {', '.join(f'.{name}' for name in FORMATS)}",
            got=f"'{path.suffix}'",
            fix=f"Try {path.with_suffix('.png')}.",
        )
    return kind
