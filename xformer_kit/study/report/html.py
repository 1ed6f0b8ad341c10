"""A report as one HTML file without other files, scripts or network access."""

import io
import re
from pathlib import Path

from xformer_kit.study.report.document import Document, Figure
from xformer_kit.study.report.tables import OUTCOMES

NOTHING = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # matplotlib's metadata


def html(document: Document) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["ident"] = ident
    environment.filters["svg"] = lambda figure: Markup(svg(figure))
    template = environment.from_string(
        Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8")
    )
    return template.render(document=document, outcomes=OUTCOMES)


def ident(name: str) -> str:
    """A name as the id of an element."""
    return re.sub(r"[^A-Za-z0-9]", "-", name)


def svg(picture: Figure) -> str:
    """The picture as an element of a page. Its ids begin with its name, because a page has several
    pictures.
    """
    file = io.StringIO()
    with picture.drawn() as figure:
        figure.savefig(file, format="svg", metadata=NOTHING)
    text = file.getvalue()
    head, _, rest = text[text.index("<svg") :].partition(">")
    size = re.search(r'viewBox="([^"]+)"', head)
    own = ident(picture.name)
    rest = re.sub(r'\bid="', f'id="{own}-', rest)
    rest = re.sub(r'(url\(#|href="#)', rf"\g<1>{own}-", rest)
    links = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {links} viewBox="{size[1]}" role="img" aria-labelledby="{own}-said">{rest}'
