"""The tables of a study at several sizes."""

from xformer_kit.study.numbers import compact
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Table
from xformer_kit.study.report.sizes import size_rows
from xformer_kit.study.report.tables import difference_cells


def at_sizes(content: Content) -> Table:
    """The differences at each size; empty for one size."""
    return Table(
        "Differences at each size",
        ["variant", "size", "parameters", "difference", "95 % CI", "effect size", "p (Holm)"],
        [
            [
                variant.full_name,
                size.name,
                compact(size.parameters),
                *difference_cells(variant.verdict.difference, variant.verdict.p, content),
            ]
            for variant, size in size_rows(content.sizes)
        ],
        f"Variant minus {content.baseline.name} in {content.metric.title}, paired by seed. p is"
        " corrected for all variants at all sizes. Parameters are those of the baseline.",
        text=(1,),
    )


def trends(content: Content) -> Table:
    """The change of each difference with size; empty for one size."""
    return Table(
        "Trend with size",
        ["variant", "change for twice the parameters", "95 % CI", "effect size", "p (Holm)"],
        [[one.variant, *difference_cells(one.slope, one.p, content)] for one in content.trends],
        f"Slope of the difference in {content.metric.title} against log2 of the parameters, fitted"
        " within each seed; t interval over seeds.",
    )
