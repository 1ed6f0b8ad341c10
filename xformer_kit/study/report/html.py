"""Renders a report as one HTML file without scripts, other files or network access."""

import io
import re

from xformer_kit.study.report.document import Document, Figure
from xformer_kit.study.report.tables import OUTCOMES
from xformer_kit.study.report.templates import render

SPACE = re.compile(r"(?<=\d) (?=%)|(?<=%) (?=CI\b)|(?<=\bp) (?=[=<])|(?<=\bp [=<]) (?=\d)")
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # of matplotlib's SVG


def html(document: Document) -> str:
    return render(
        "page.html.j2",
        document,
        {"element_id": element_id, "svg": svg, "unbroken": unbroken},
        outcomes=OUTCOMES,
    )


def element_id(name: str) -> str:
    """A name as the id of an HTML element."""
    return re.sub(r"[^A-Za-z0-9]", "-", name)


def unbroken(text: str) -> str:
    """The text with no-break spaces in 95 % CI and in p < 0.0001."""
    return SPACE.sub("\N{NO-BREAK SPACE}", text)


def svg(figure: Figure, wide: bool) -> str:
    """A form of the figure as an SVG element of the class `wide` or `narrow`. Its ids begin with
    the figure's name and form, unique on a page.
    """
    file, form = io.StringIO(), "wide" if wide else "narrow"
    with figure.drawn(wide) as canvas:
        canvas.savefig(file, format="svg", metadata=NO_METADATA)
    text = file.getvalue()
    head, _, rest = text[text.index("<svg") :].partition(">")
    size = re.search(r'viewBox="([^"]+)"', head)
    title = f"{element_id(figure.name)}-title"
    name = f"{element_id(figure.name)}-{form}"
    rest = re.sub(r'\bid="', f'id="{name}-', rest)
    rest = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", rest)
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head = f'class="{form}" viewBox="{size[1]}" role="img" aria-labelledby="{title}"'
    return f"<svg {namespaces} {head}>{rest}"
