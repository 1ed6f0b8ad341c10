"""A report as one HTML file, which needs nothing beside it: no network, no script, no other
file.
"""

import io
import re
from pathlib import Path
from typing import Any

from xformer_kit.study.report.content import Content
from xformer_kit.study.report.links import address
from xformer_kit.study.report.look import Picture
from xformer_kit.study.report.page import blocks
from xformer_kit.study.report.plots import pictures
from xformer_kit.study.report.tables import WORDS


def html(content: Content) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["ident"] = ident
    template = environment.from_string(
        Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8")
    )
    drawn = {picture.name: (picture, Markup(svg(picture))) for picture in pictures(content)}
    return template.render(
        content=content,
        link=address(content.paper),
        blocks=list(blocks(content)),
        drawn=drawn,
        verdicts=_verdicts(content),
        words=WORDS | {"baseline": "baseline"},
    )


def ident(name: str) -> str:
    """A name as the id of an element."""
    return re.sub(r"[^A-Za-z0-9]", "-", name)


def _verdicts(content: Content) -> list[tuple[str, str]]:
    """(outcome, sentence) of each variant."""
    outcomes = ["baseline", *(arm.verdict.outcome for arm in content.arms[1:])]
    return list(zip(outcomes, content.sentences, strict=True))


NOTHING = {
    "Date": None,
    "Creator": None,
    "Format": None,
    "Type": None,
}  # what matplotlib would say of itself


def svg(picture: Picture) -> str:
    """The picture as an element of a page. Its ids begin with its name, for a page has several
    pictures.
    """

    def save(figure: Any) -> str:
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=NOTHING)
        return text.getvalue()

    text = picture.draw(save)
    text = text[text.index("<svg") :]
    head, _, rest = text.partition(">")
    size = re.search(r'viewBox="([^"]+)"', head)
    own = ident(picture.name)
    rest = re.sub(r'\bid="', f'id="{own}-', rest)
    rest = re.sub(r'(url\(#|href="#)', rf"\g<1>{own}-", rest)
    links = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {links} viewBox="{size[1]}" role="img" aria-labelledby="{own}-said">{rest}'
