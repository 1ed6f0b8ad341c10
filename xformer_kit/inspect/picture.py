"""A picture for notebooks and files, drawn without a screen."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xformer_kit.inspect.style import drawable, styled
from xformer_kit.registry import config_error

FORMATS = ("png", "svg", "pdf")
DPI = 150  # of PNG: pixels to an inch


class Picture:
    """A picture that notebooks show. `figure` is matplotlib's, with its `axes`; `save` writes it.

    `draw` is called with an empty figure. The same picture saved twice gives the same bytes.
    """

    def __init__(self, width: float, height: float, draw: Callable[[Any], None]):
        drawable()
        with styled():
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure

            self.figure = Figure(figsize=(width, height), layout="constrained")
            FigureCanvasAgg(self.figure)
            draw(self.figure)

    def save(self, path: str | Path) -> Path:
        """Write the picture as .png, .svg or .pdf. Raises ConfigError for another ending, and if it
        cannot be written.
        """
        path = Path(path).expanduser()
        kind = ending(path)
        data = self.encoded(kind)
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
        """The picture as a file of that kind."""
        file, undated = io.BytesIO(), {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
        with styled(salt="xformer"):
            self.figure.savefig(
                file,
                format=kind,
                dpi=DPI,
                bbox_inches="tight",
                pad_inches=0.08,
                metadata={undated[kind]: None},
            )
        return file.getvalue()

    def _repr_png_(self) -> bytes:
        return self.encoded("png")


def ending(path: Path) -> str:
    """The kind of a picture's file. Raises ConfigError for one that there is not."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        names = ", ".join(f".{name}" for name in FORMATS)
        raise config_error(
            path,
            f"must end in one of {names}",
            got=f"'{path.suffix}'",
            fix=f"Try {path.with_suffix('.png')}.",
        )
    return kind
