"""Builds pages of Markdown whose blocks are HTML, each on one line so that Markdown copies it."""

import html
from collections.abc import Iterable, Sequence


def block(text: str) -> str:
    """Returns HTML as one line, which Markdown copies unchanged."""
    return " ".join(text.split("\n"))


def text(words: str) -> str:
    """Returns a text as HTML."""
    return html.escape(words, quote=False)


def paragraph(words: str, kind: str = "") -> str:
    """Returns a paragraph of HTML with a CSS class."""
    return block(f"<p{_class(kind)}>{words}</p>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Returns a table with cells of HTML and a CSS class."""
    top = "".join(f"<th>{word}</th>" for word in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return block(
        f'<div class="table-wrapper docutils container {kind}"><table class="docutils'
        f' align-default"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def link(words: str, to: str) -> str:
    """Returns a link to an address."""
    return f'<a href="{html.escape(to)}">{words}</a>'


def page(title: str, *blocks: str, listed: bool = True) -> str:
    """Returns a page of Markdown without its empty blocks.

    listed: whether the page is in the navigation of the site.
    """
    head = "" if listed else "---\norphan: true\n---\n\n"
    return head + "\n\n".join((f"# {title}", *(b for b in blocks if b))) + "\n"


def toctree(entries: Iterable[str], hidden: bool = True, depth: int = 1) -> str:
    """Returns Sphinx's list of pages."""
    options = f":hidden:\n:maxdepth: {depth}" if hidden else f":maxdepth: {depth}"
    return f"```{{toctree}}\n{options}\n\n" + "\n".join(entries) + "\n```"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
