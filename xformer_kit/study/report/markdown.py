"""A report as Markdown: the sentences and the tables; pictures are in the HTML."""

import re
from collections.abc import Iterator

from xformer_kit.study.report.content import Content
from xformer_kit.study.report.links import address
from xformer_kit.study.report.page import Block, blocks
from xformer_kit.study.report.tables import Table

SIGNS = re.compile(r"[\\`*\[\]|<>&]|(?<!\w)_|_(?!\w)")
HTML = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def markdown(content: Content) -> str:
    return "\n\n".join(_page(content)) + "\n"


def _page(content: Content) -> Iterator[str]:
    yield f"# {plain(content.question)}"
    yield plain(f"Study {content.name}: {content.setting}.")
    if content.partial:
        yield f"**{plain(content.partial)}**"
    yield f"**{plain(content.sentence)}**"
    if content.claim or content.paper:
        yield _claim(content)
    yield "\n".join(f"- {plain(sentence)}" for sentence in content.sentences)
    for block in blocks(content):
        yield from _block(block)
    yield (
        "Pictures are in [report.html](report.html), every figure is in [runs.csv](runs.csv) and"
        " [variants.csv](variants.csv)."
    )


def _claim(content: Content) -> str:
    link = address(content.paper)
    paper = f"[{plain(content.paper)}]({link})" if link else plain(content.paper)
    return f"Claim ({paper}): {plain(content.claimed)}" if content.claim else f"After: {paper}."


def _block(block: Block) -> Iterator[str]:
    if not (block.text or block.tables or block.commands or block.quotes):
        return
    yield f"## {block.title}"
    yield from (plain(text) for text in block.text)
    yield from (fenced(line) for line in block.commands)
    for table in block.tables:
        yield from _table(table, titled=table.title != block.title)
    for title, text in block.quotes:
        yield f"**{plain(title)}**"
        yield fenced(text)


def _table(table: Table, titled: bool) -> Iterator[str]:
    if titled:
        yield f"### {table.title}"
    rule = ["---:" if i in table.numeric else "---" for i in range(len(table.header))]
    rows = [table.header, rule, *table.rows]
    yield "\n".join("| " + " | ".join(map(plain, row)) + " |" for row in rows)
    if table.note:
        yield plain(table.note)


def plain(text: str) -> str:
    """Text in which Markdown sees no signs of its own, on one line."""
    return SIGNS.sub(lambda m: HTML.get(m[0], f"\\{m[0]}"), " ".join(text.split()))


def fenced(text: str) -> str:
    """Text as it is, in a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"
