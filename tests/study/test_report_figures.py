"""The pictures of a report: what their axes show."""

import re
from dataclasses import replace

import pytest
from drawings import assert_ticks_are_exact
from studies import KINDS, changed, finished, ladder, placements, report_of, study, variant

from xformer_kit.study.report.html import html

pytestmark = pytest.mark.extended

PHONE = 360  # pixels of a narrow phone
MARGINS = 2 * 16  # pixels of a page
REM = 16  # pixels


@pytest.mark.parametrize("kind", KINDS)
def test_ticks_of_figures_are_exact(kind):
    for picture in report_of(KINDS[kind]()).figures:
        with picture.drawn() as figure:
            assert_ticks_are_exact(figure, ["optimizer step", "trial"])


@pytest.mark.parametrize("flops", [1.02e15, 3.1e13, 987.0])
def test_ticks_of_costs_that_hardly_differ_are_exact(flops):
    known = [variant(flops=flops), changed("placement", "post", flops=1.04 * flops)]
    report = report_of(
        study(known, [finished(i, seed, 2.3 + 0.1 * i) for i in range(2) for seed in range(2)])
    )
    (picture,) = [one for one in report.figures if one.name == "cost flops"]
    with picture.drawn() as figure:
        assert_ticks_are_exact(figure)


def test_a_variant_of_few_steps_is_within_the_axes_of_its_curves():
    known = [variant(), changed("placement", "post", steps=150)]
    report = report_of(
        study(
            known,
            [
                finished(i, seed, 2.3 + 4 * i, steps=(2000, 150)[i])
                for i in range(2)
                for seed in range(2)
            ],
        )
    )

    (picture,) = [one for one in report.figures if one.name == "curve train/loss"]
    with picture.drawn() as figure:
        (axes,) = figure.axes
        (low, high), short = axes.get_ylim(), min(axes.lines, key=lambda line: line.get_xdata()[-1])
        assert short.get_xdata()[-1] == 150 and low <= min(short.get_ydata()) <= high


def test_the_pareto_front_continues_to_the_highest_cost():
    """The baseline is best and cheapest: its front is a line through all costs."""
    known = [variant(flops=1e13), changed("placement", "post", flops=2e13)]
    report = report_of(
        study(known, [finished(i, seed, 2.3 + 0.1 * i) for i in range(2) for seed in range(2)])
    )
    (picture,) = [one for one in report.figures if one.name == "cost flops"]
    with picture.drawn() as figure:
        lines = [line.get_xydata().tolist() for line in figure.axes[0].lines]
    assert [[1e13, 2.3], [2e13, 2.3]] in lines


def test_a_metric_of_one_step_has_no_curve():
    def names(every):
        known = [variant(), changed("placement", "post")]
        runs = [finished(i, seed, 2.3 + i) for i in range(2) for seed in range(2)]
        cut = [
            replace(
                o, curves=o.curves | {"val/loss": tuple(x[-every:] for x in o.curves["val/loss"])}
            )
            for o in runs
        ]
        return {figure.name for figure in report_of(study(known, cut)).figures}

    assert names(2) - names(1) == {"curve val/loss", "gap"}


def long_names():
    found = placements(2)
    names = (
        "baseline",
        "decoder.variants.local.mask.window=sliding_window_with_sinks,placement=post",
        "a" * 80,
        "b c" * 9,
    )
    return replace(
        found,
        variants=[one | {"name": name} for one, name in zip(found.variants, names, strict=True)],
    )


ALL = KINDS | {"ladder": ladder, "long names": long_names}


@pytest.mark.parametrize("kind", ALL)
def test_no_part_of_a_figure_is_cut_off(kind):
    def within(figure):
        figure.draw_without_rendering()
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert (
            box.x0 >= -0.02
            and box.y0 >= -0.02
            and box.x1 <= width + 0.02
            and box.y1 <= height + 0.02
        )

    for picture in report_of(ALL[kind]()).figures:
        with picture.drawn() as figure:
            within(figure)


@pytest.mark.parametrize("kind", ALL)
def test_a_page_fits_a_phone(kind):
    """Pictures are as wide as the page, with letters of 10 pixels at least, and only tables are
    scrolled.
    """
    page = html(report_of(ALL[kind]()))
    pictures_ = re.findall(r"<figure>\s*<svg([^>]*)>(.*?)</svg>\s*<figcaption", page, re.DOTALL)
    assert len(pictures_) == page.count("<svg") > 0
    for head, body in pictures_:
        left, top, width, _ = map(float, re.search(r'viewBox="([^"]+)"', head)[1].split())
        assert left == top == 0 and not re.search(r"\b(width|height|style)=", head)
        sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", body)]
        assert min(sizes) * (PHONE - MARGINS) / width >= 10
    (rule,) = re.findall(r"^figure svg {([^}]*)}", page, re.MULTILINE)
    assert "width: 100%;" in rule and "height: auto;" in rule and "min-width" not in rule
    assert page.count("<table") == len(re.findall(r'<div class="wide"[^>]*>\s*<table', page))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    pixels = {"px": 1, "rem": REM}
    for prefix, size, unit in re.findall(r"([\w-]*)\bwidth: ([\d.]+)(px|rem)", style):
        assert prefix == "max-" or float(size) * pixels[unit] <= PHONE - MARGINS
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
