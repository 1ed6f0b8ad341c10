"""Arranges the content of a report into a `Document`: the answer, then the sections."""

from collections.abc import Iterator

from xformer_kit.study.command import command
from xformer_kit.study.report import (
    curve_plots,
    forecast,
    law_plots,
    law_tables,
    laws,
    noise,
    plots,
    size_plot,
    size_tables,
    tables,
)
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Document, Section, Table
from xformer_kit.study.report.search import SearchSummary
from xformer_kit.study.report.start import starting_weights

UNNAMED = "study"  # the name of a study without one
BEST = 10  # trials in the first table of a search


def document(content: Content) -> Document:
    """The document of a report."""
    outcomes = [one.verdict.outcome if one.verdict else "baseline" for one in content.variants]
    name = content.results.study["name"]
    return Document(
        title=_title(content),
        subtitle=content.setting if name == UNNAMED else f"Study {name}: {content.setting}",
        hardly_trained=content.hardly_trained,
        partial=content.partial,
        answer=content.sentence,
        paper=content.results.claim.get("paper") or "",
        claim=content.claim_sentence,
        claim_outcome=content.claim.outcome if content.claim else "",
        verdicts=list(zip(outcomes, content.sentences, strict=True)),
        sections=[section for section in _sections(content) if not section.empty],
    )


def _title(content: Content) -> str:
    """The question; of a study without question and name, its factors."""
    if content.question != UNNAMED:
        return content.question
    factors = " and ".join(content.baseline.levels)
    return f"Study of {factors}" if factors else "Study"


def _sections(content: Content) -> Iterator[Section]:
    """All sections in order; some may be empty."""
    yield from _difference_sections(content)
    if content.search:
        yield from _search_sections(content, content.search)
    yield from _law_sections(content)
    yield Section(
        "Main effects and interactions",
        [sentence for *_, sentence in content.effects],
        tables=list(tables.effects(content)),
    )
    if content.secondary:
        text = (
            f"Variants are tested in {content.metric.name} only. Secondary metrics have no"
            f" p-values: means and differences from {content.baseline.name} over common seeds, with"
            " confidence intervals that are not corrected."
        )
        yield Section(
            "Secondary metrics",
            [text],
            tables=[tables.secondary(content, one) for one in content.secondary],
        )
    yield _table_section(tables.irregular_runs(content))
    yield Section("Learning curves", figures=list(curve_plots.figures(content)))
    yield Section(
        "Budget, tuning and comparability",
        [content.matched, *content.tuning, *content.notes],
        tables=[tables.tuning(content), tables.composition(content)],
    )
    yield starting_weights(content)
    yield Section("Cost", figures=list(plots.costs(content)), tables=[tables.costs(content)])
    quotes = [(f"{name}, seed {seed}", text) for name, seed, text in content.samples]
    yield Section("Samples", quotes=quotes, folded=True)
    yield _table_section(tables.runs(content), folded=True)
    if content.laws:
        yield _table_section(law_tables.rungs(content.laws), folded=True)
    if content.results.command:
        yield _reproduction_section(content)


def _difference_sections(content: Content) -> Iterator[Section]:
    """The differences from the baseline with the noise of one run, and those at each size."""
    yield Section(
        "Differences from the baseline",
        figures=list(plots.forest(content)),
        tables=[
            tables.differences(content),
            tables.means(content),
            noise.table(content.noise, content.metric),
        ],
    )
    yield Section(
        "Sizes",
        figures=list(size_plot.figure(content)),
        tables=[size_tables.at_sizes(content), size_tables.trends(content)],
    )


def _law_sections(content: Content) -> Iterator[Section]:
    """The forecast and the laws of a ladder."""
    if written := content.forecast:
        yield Section(
            "Forecast",
            list(forecast.forecast_sentences(written, content.metric)),
            tables=[forecast.table(written, content.metric)],
        )
    if found := content.laws:
        yield Section(
            "Scaling laws",
            laws.notes(found),
            list(law_plots.figures(content)),
            law_tables.tables(found),
        )


def _table_section(table: Table, folded: bool = False) -> Section:
    """A section that consists of one table, with its title."""
    return Section(table.title, tables=[table], folded=folded)


def _search_sections(content: Content, search: SearchSummary) -> Iterator[Section]:
    """The best points with their command lines, then all trials."""
    text, names = list(search.sentences), list(search.commands)
    if names:
        text.append(f"Commands that train {' and '.join(names)}:")
    note = "At the seed of the search, at which they were selected."
    best = tables.trials(content, "Best trials", search.best[:BEST], note)
    yield Section(
        "Search",
        text,
        list(plots.history(content)),
        [best, tables.importance(content)],
        list(map(command, search.commands.values())),
    )
    yield _table_section(tables.trials(content, "All trials", search.points), folded=True)


def _reproduction_section(content: Content) -> Section:
    """How to repeat or continue the study."""
    text = ["Finished runs are not repeated; missing and interrupted runs are run."]
    if any(one.status in ("failed", "diverged") for one in content.irregular_runs):
        text.append("study.retry=true repeats runs that failed or diverged.")
    if content.results.study["budget"]["match"] == "seconds":
        text.append(
            "On another machine the time of a step is measured again, so variants may get other"
            " numbers of steps."
        )
    if content.results.components:
        text.append(f"Component files: {', '.join(content.results.components)}.")
    return Section(
        "Reproduction",
        text,
        tables=[tables.versions(content)],
        commands=[command(content.results.command)],
    )
