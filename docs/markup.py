"""Pieces of a page. Pages are Markdown whose blocks are HTML, each on one line: Markdown then
leaves them as they are.
"""

import html
from collections.abc import Iterable, Sequence


def block(text: str) -> str:
    """HTML that Markdown does not look into."""
    return " ".join(text.split("\n"))


def text(words: str) -> str:
    return html.escape(words, quote=False)


def paragraph(words: str, kind: str = "") -> str:
    return block(f"<p{_class(kind)}>{words}</p>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{word}</th>" for word in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return block(
        f'<div class="table-wrapper docutils container {kind}"><table class="docutils'
        f' align-default"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def link(words: str, to: str) -> str:
    return f'<a href="{html.escape(to)}">{words}</a>'


def page(title: str, *blocks: str, listed: bool = True) -> str:
    """A page of Markdown; empty blocks are left out. listed: whether it is in the list next to
    all pages.
    """
    head = "" if listed else "---\norphan: true\n---\n\n"
    return head + "\n\n".join((f"# {title}", *(b for b in blocks if b))) + "\n"


def toctree(entries: Iterable[str], hidden: bool = True, depth: int = 1) -> str:
    options = f":hidden:\n:maxdepth: {depth}" if hidden else f":maxdepth: {depth}"
    return f"```{{toctree}}\n{options}\n\n" + "\n".join(entries) + "\n```"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
