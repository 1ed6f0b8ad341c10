"""The order of a report: the answer, then sections of text, figures and tables."""

from collections.abc import Iterator

from xformer_kit.study.command import command
from xformer_kit.study.report import law_plots, law_tables, laws, plots, tables
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Document, Section

BEST = 10  # trials in the first table of a search


def document(content: Content) -> Document:
    return Document(
        title=content.question,
        subtitle=f"Study {content.results.study['name']}: {content.setting}",
        partial=content.partial,
        answer=content.sentence,
        paper=content.paper,
        claim=content.claimed,
        claim_outcome=content.claim.outcome if content.claim else "",
        verdicts=list(
            zip(
                [one.verdict.outcome if one.verdict else "baseline" for one in content.variants],
                content.sentences,
                strict=True,
            )
        ),
        sections=list(_sections(content)),
    )


def _sections(content: Content) -> Iterator[Section]:
    """All sections that are not empty."""
    yield Section(
        "Figures",
        figures=list(plots.forest(content)),
        tables=[*tables.differences(content), tables.means(content)],
    )
    if content.search:
        yield from _search(content)
    if found := content.laws:
        yield Section(
            "Laws of size and data",
            laws.notes(found),
            list(law_plots.figures(content)),
            law_tables.tables(found),
        )
    if content.effects:
        yield Section(
            "Effects of the factors",
            [sentence for *_, sentence in content.effects],
            tables=list(tables.effects(content)),
        )
    if content.secondary:
        text = (
            f"The study compares variants in {content.metric.name} only. Of these metrics no"
            f" verdict is drawn and no p is given: means and differences to {content.baseline.name}"
            " over common seeds, with intervals that are not corrected."
        )
        yield Section(
            "Also measured",
            [text],
            tables=[tables.secondary(content, one) for one in content.secondary],
        )
    if content.troubles:
        yield Section(
            "What diverged, failed or is unfinished", tables=list(tables.troubles(content))
        )
    if content.curves:
        yield Section("Learning curves", figures=[*plots.gaps(content), *plots.curves(content)])
    yield Section(
        "What was matched",
        [content.matched, *content.tuning, *content.notes],
        tables=[*tables.tuning(content), tables.composition(content)],
    )
    yield Section("Cost", figures=list(plots.costs(content)), tables=[tables.costs(content)])
    if content.samples:
        quotes = [(f"{name}, seed {seed}", text) for name, seed, text in content.samples]
        yield Section("Samples side by side", quotes=quotes, folded=len(quotes) > 8)
    for table in tables.runs(content):
        yield Section(table.title, tables=[table], folded=True)
    if content.laws:
        yield Section("Every rung", tables=[law_tables.rungs(content.laws)], folded=True)
    yield _repeat(content)


def _search(content: Content) -> Iterator[Section]:
    """The best point and its command line first."""
    search = content.search
    assert search is not None
    text = list(search.sentences)
    if names := list(search.commands):
        text.append(
            f"To train {' and '.join(names)} by {'itself' if len(names) == 1 else 'themselves'}:"
        )
    note = "At the seed of the search, at which they were chosen."
    best = [tables.trials(content, "Best trials", search.best[:BEST], note)] if search.best else []
    yield Section(
        "The search",
        text,
        list(plots.history(content)),
        [*best, *tables.importance(content)],
        [command(words) for words in search.commands.values()],
    )
    every = tables.trials(content, "Every trial", search.points)
    yield Section(every.title, tables=[every], folded=True)


def _repeat(content: Content) -> Section:
    """How to run the study again."""
    text = [
        "Runs that are there are not repeated; those that are missing or were interrupted are run."
    ]
    if any(one.status in ("failed", "diverged") for one in content.troubles):
        text.append("Those that failed or diverged are run once more with study.retry=true.")
    if content.results.study["budget"]["match"] == "seconds":
        text.append(
            "On another machine steps are measured anew, and variants may get other numbers of"
            " them."
        )
    if content.results.parts:
        text.append(f"Own parts: {', '.join(content.results.parts)}.")
    return Section(
        "To do it again",
        text,
        tables=list(tables.versions(content)),
        commands=[command(content.results.command)],
    )
