"""The order of a report: the answer, then sections of text, figures and tables."""

from collections.abc import Iterator

from xformer_kit.study.command import command
from xformer_kit.study.report import law_plots, law_tables, laws, plots, tables
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Document, Section, Table
from xformer_kit.study.report.search import SearchSummary

BEST = 10  # trials in the first table of a search


def document(content: Content) -> Document:
    outcomes = [one.verdict.outcome if one.verdict else "baseline" for one in content.variants]
    return Document(
        title=content.question,
        subtitle=f"Study {content.results.study['name']}: {content.setting}",
        partial=content.partial,
        answer=content.sentence,
        paper=content.paper,
        claim=content.claimed,
        claim_outcome=content.claim.outcome if content.claim else "",
        verdicts=list(zip(outcomes, content.sentences, strict=True)),
        sections=[section for section in _sections(content) if not section.empty],
    )


def _sections(content: Content) -> Iterator[Section]:
    """Tables and sections may be empty."""
    yield Section(
        "Figures",
        figures=list(plots.forest(content)),
        tables=[tables.differences(content), tables.means(content)],
    )
    if content.search:
        yield from _search(content, content.search)
    if found := content.laws:
        figures = list(law_plots.figures(content))
        yield Section("Laws of size and data", laws.notes(found), figures, law_tables.tables(found))
    each = [sentence for *_, sentence in content.effects]
    yield Section("Effects of the factors", each, tables=list(tables.effects(content)))
    if content.secondary:
        text = (
            f"The study compares variants in {content.metric.name} only. Of these metrics no"
            f" verdict is drawn and no p is given: means and differences to {content.baseline.name}"
            " over common seeds, with intervals that are not corrected."
        )
        measured = [tables.secondary(content, one) for one in content.secondary]
        yield Section("Also measured", [text], tables=measured)
    yield _of_table(tables.troubles(content))
    yield Section("Learning curves", figures=[*plots.gaps(content), *plots.curves(content)])
    yield Section(
        "What was matched",
        [content.matched, *content.tuning, *content.notes],
        tables=[tables.tuning(content), tables.composition(content)],
    )
    yield Section("Cost", figures=list(plots.costs(content)), tables=[tables.costs(content)])
    quotes = [(f"{name}, seed {seed}", text) for name, seed, text in content.samples]
    yield Section("Samples side by side", quotes=quotes, folded=len(quotes) > 8)
    yield _of_table(tables.runs(content), folded=True)
    if content.laws:
        yield _of_table(law_tables.rungs(content.laws), folded=True)
    yield _repeat(content)


def _of_table(table: Table, folded: bool = False) -> Section:
    return Section(table.title, tables=[table], folded=folded)


def _search(content: Content, search: SearchSummary) -> Iterator[Section]:
    """The best point and its command line first."""
    text, names = list(search.sentences), list(search.commands)
    if names:
        which = "itself" if len(names) == 1 else "themselves"
        text.append(f"To train {' and '.join(names)} by {which}:")
    note = "At the seed of the search, at which they were chosen."
    best = tables.trials(content, "Best trials", search.best[:BEST], note)
    yield Section(
        "The search",
        text,
        list(plots.history(content)),
        [best, tables.importance(content)],
        list(map(command, search.commands.values())),
    )
    yield _of_table(tables.trials(content, "Every trial", search.points), folded=True)


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
    if content.results.components:
        text.append(f"Own components: {', '.join(content.results.components)}.")
    return Section(
        "To do it again",
        text,
        tables=[tables.versions(content)],
        commands=[command(content.results.command)],
    )
