"""The figure of a study at several sizes: differences from the baseline against its parameters."""

from collections.abc import Iterator

from xformer_kit.inspect.style import INK
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Figure
from xformer_kit.study.report.style import MAX_STYLES, line_plot, variant_styles


def figure(content: Content) -> Iterator[Figure]:
    """Mean differences with their intervals against parameters, one line for each variant, of as
    many as have a style of their own.
    """
    if not content.trends or len(content.trends) >= MAX_STYLES:
        return
    styles, scale = variant_styles(content)[1:], content.metric.scale

    def draw(axes):
        from matplotlib.ticker import EngFormatter, NullLocator

        axes.axhline(0, color=INK, linewidth=1.2)
        axes.set_xscale("log")
        for i, style in enumerate(styles, 1):
            # Variants are drawn next to each other, so that their intervals can be compared.
            aside = 1 + 0.03 * (i - (len(styles) + 1) / 2)
            known = [
                (aside * size.parameters, d)
                for size in content.sizes
                if (d := size.variants[i].verdict.difference).low is not None
            ]
            axes.errorbar(
                [x for x, _ in known],
                [scale * d.mean for _, d in known],
                [
                    [scale * (d.mean - d.low) for _, d in known],
                    [scale * (d.high - d.mean) for _, d in known],
                ],
                **style.errorbar_options,
                linestyle=style.line,
                markersize=6,
                capsize=3,
                label=style.label,
            )
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xticks(sorted({size.parameters for size in content.sizes}))
        axes.xaxis.set_minor_locator(NullLocator())

    yield line_plot(
        "sizes",
        "Differences at each size",
        f"Variant minus {content.baseline.name}, mean over seeds with its 95 % CI.",
        draw,
        "parameters of the baseline",
        f"difference in {content.metric.title}",
        styles,
    )
