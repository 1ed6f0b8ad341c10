"""The order of a report below its answer: blocks of sentences, tables, pictures, commands and
samples.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from xformer_kit.study.report import law_tables, laws, tables
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.tables import Table
from xformer_kit.study.typed import command


@dataclass(frozen=True)
class Block:
    title: str
    text: list[str] = field(default_factory=list)
    pictures: tuple[str, ...] = ()  # names of those that stand here, where they were drawn
    tables: list[Table] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    quotes: list[tuple[str, str]] = field(default_factory=list)  # title, text
    folded: bool = False  # read by few


def blocks(content: Content) -> Iterator[Block]:
    """All of a report's blocks that have something to say."""
    yield Block(
        "Figures", [], ("forest",), _there(tables.differences(content), tables.figures(content))
    )
    if content.search:
        yield from _search(content)
    if content.laws:
        yield Block(
            "Laws of size and data",
            laws.notes(content.laws),
            ("laws", "laws compute"),
            law_tables.tables(content),
        )
    if content.effects:
        yield Block(
            "Effects of the factors",
            [sentence for *_, sentence in content.effects],
            (),
            list(tables.effects(content)),
        )
    if content.also:
        said = (
            f"The study compares variants in {content.metric.name} alone. Of these metrics no"
            f" verdict is drawn and no p is given: means and differences to {content.baseline.name}"
            " over common seeds, with intervals that are not corrected."
        )
        yield Block("Also measured", [said], (), list(tables.also(content)))
    if content.troubles:
        yield Block(
            "What diverged, failed or is unfinished", [], (), _there(tables.troubles(content))
        )
    if content.curves:
        yield Block("Learning curves", [], ("gap", *(f"curve {name}" for name in content.curves)))
    fair = [content.matched, *content.tuning, *content.notes]
    yield Block(
        "What was matched", fair, (), _there(tables.points(content), tables.composition(content))
    )
    yield Block("Cost", [], ("cost flops", "cost params", "cost seconds"), [tables.costs(content)])
    if content.samples:
        quotes = [(f"{name}, seed {seed}", text) for name, seed, text in content.samples]
        yield Block("Samples side by side", quotes=quotes, folded=len(quotes) > 8)
    if every := tables.runs(content):
        yield Block("Every run", tables=[every], folded=True)
    if content.laws:
        yield Block("Every rung", tables=[law_tables.rungs(content)], folded=True)
    yield _again(content)


BEST = 10  # trials in the first table of a search


def _search(content: Content) -> Iterator[Block]:
    """The best point and its command line first."""
    search = content.search
    assert search is not None
    found = [search.found, search.confirmed(content.arms, content.metric), search.sentence]
    text, commands = [sentence for sentence in found if sentence], []
    if chosen := search.chosen(content.arms, content.metric):
        text.append(
            f"To train {' and '.join(chosen)} by {'itself' if len(chosen) == 1 else 'themselves'}:"
        )
        commands += [command(words) for words in chosen.values()]
    few = _there(tables.trials(content, BEST), tables.importance(content))
    yield Block("The search", text, ("history",), few, commands)
    yield Block("Every trial", tables=_there(tables.trials(content)), folded=True)


def _again(content: Content) -> Block:
    said = [
        "Runs that are there are not repeated; those that are missing or were interrupted are run."
    ]
    if any(trouble.status in ("failed", "diverged") for trouble in content.troubles):
        said.append("Those that failed or diverged are run once more with study.retry=true.")
    if content.match == "seconds":
        said.append(
            "On another machine steps are measured anew, and variants may get other numbers of"
            " them."
        )
    if content.parts:
        said.append(f"Own parts: {', '.join(content.parts)}.")
    return Block(
        "To do it again", said, (), _there(tables.versions(content)), [command(content.command)]
    )


def _there(*found: Table | None) -> list[Table]:
    return [table for table in found if table is not None]
