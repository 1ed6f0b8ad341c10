"""The pictures of a report: what their axes show."""

import itertools
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from drawings import assert_ticks_are_exact
from matplotlib.text import Text
from studies import KINDS, changed, finished, ladder, placements, report_of, study, variant

from xformer_kit.study.report.html import html
from xformer_kit.study.report.labels import spread

pytestmark = pytest.mark.extended

PHONE = 360  # pixels of a narrow phone
MARGINS = 2 * 16  # pixels of a page
SCREEN = 1200  # pixels of a wide page
REM = 16  # pixels


@pytest.mark.parametrize("kind", KINDS)
def test_ticks_of_figures_are_exact(kind):
    for picture in report_of(KINDS[kind]()).figures:
        with picture.drawn() as figure:
            assert_ticks_are_exact(figure, ["optimizer step", "trial"])


def losses_of(report):
    (picture,) = [one for one in report.figures if one.name == "losses"]
    return picture


@pytest.mark.parametrize("wide", [True, False])
def test_panels_of_losses_share_their_limits_and_show_the_gap(wide):
    """The training loss is far above the validation loss; both ends are within both panels."""
    known = [variant(), changed("placement", "post")]
    runs = [finished(i, seed, 2.3 + 0.1 * i) for i in range(2) for seed in range(2)]
    above = [
        replace(o, curves=o.curves | {"train/loss": ([10, 500, 1000], [9.0, 6.0, 5.0])})
        for o in runs
    ]
    with losses_of(report_of(study(known, above))).drawn(wide) as figure:
        validation, training = figure.axes
        assert [axes.get_title() for axes in figure.axes] == ["val/loss", "train/loss"]
        low, high = validation.get_ylim()
        assert training.get_ylim() == (low, high) and low < 2.3 and high > 5.0
        assert validation.get_xlim() == training.get_xlim()


def test_curves_that_coincide_are_all_visible():
    """Each is thinner than those below it, and its name is at its end, apart from the others."""
    labels = [f"p{i}" for i in range(1, 8)]
    known = [variant(), *(changed("placement", label) for label in labels)]
    runs = [finished(i, seed, 2.3) for i in range(8) for seed in range(2)]
    with losses_of(report_of(study(known, runs))).drawn(wide=True) as figure:
        figure.draw_without_rendering()
        for axes in figure.axes:
            curves = [line for line in axes.lines if len(line.get_xdata()) > 1]
            widths = [line.get_linewidth() for line in curves]
            assert len(widths) == 8 and widths == sorted(set(widths), reverse=True)
            assert {text.get_text() for text in axes.texts} == {
                "baseline",
                *(f"placement={label}" for label in labels),
            }
            boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the thin line
            boxes.sort(key=lambda box: box.y0)
            assert all(below.y1 <= above.y0 + 1 for below, above in pairwise(boxes))


@pytest.mark.parametrize(
    ("wanted", "heights", "expected"),
    [
        ([0.9, 0.5], [0.2, 0.2], [0.9, 0.5]),  # nothing to move
        ([0.5, 0.5], [0.2, 0.2], [0.5, 0.3]),
        ([0.5, 0.5], [0.2, 0.4], [0.5, 0.2]),
        ([0.1, 0.0, 0.0], [0.2, 0.2, 0.2], [0.4, 0.2, 0.0]),  # not below the axes
    ],
)
def test_names_are_spread(wanted, heights, expected):
    assert spread(wanted, heights) == pytest.approx(expected)


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

    with losses_of(report).drawn() as figure:
        axes = figure.axes[1]
        assert axes.get_title() == "train/loss"
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

    assert "losses" in names(1) and names(2) - names(1) == {"gap"}


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
    def assert_within(figure):
        figure.draw_without_rendering()
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert (
            box.x0 >= -0.02
            and box.y0 >= -0.02
            and box.x1 <= width + 0.02
            and box.y1 <= height + 0.02
        )

    for picture, wide in itertools.product(report_of(ALL[kind]()).figures, (True, False)):
        with picture.drawn(wide) as figure:
            assert_within(figure)


@pytest.mark.parametrize("kind", ALL)
def test_a_page_fits_a_phone_and_a_wide_screen(kind):
    """Pictures are as wide as the page, with letters of 10 pixels at least, and only tables are
    scrolled. Each picture has two forms, one of which is shown.
    """
    page = html(report_of(ALL[kind]()))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (widest,) = re.findall(r"^body {[^}]*max-width: (\d+)rem", style, re.MULTILINE)
    of_page = {"narrow": PHONE - MARGINS, "wide": min(SCREEN, int(widest) * REM) - MARGINS}
    assert of_page["wide"] > 0.9 * SCREEN
    figures = re.findall(r"<figure>(.*?)<figcaption", page, re.DOTALL)
    forms = []
    for figure in figures:
        for head, body in re.findall(r"<svg([^>]*)>(.*?)</svg>", figure, re.DOTALL):
            left, top, width, _ = map(float, re.search(r'viewBox="([^"]+)"', head)[1].split())
            assert left == top == 0 and not re.search(r"\b(width|height|style)=", head)
            sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", body)]
            forms.append(form := re.search(r'class="(\w+)"', head)[1])
            assert min(sizes) * of_page[form] / width >= 10
    assert forms == ["wide", "narrow"] * len(figures) and len(forms) == page.count("<svg") > 0
    hidden = dict(re.findall(r"@media (\S.*?) { svg\.(\w+) { display: none; } }", style))
    assert hidden == {
        "screen and (min-width: 52rem)": "narrow",
        "print, (max-width: 51.99rem)": "wide",
    }
    (rule,) = re.findall(r"^figure svg {([^}]*)}", page, re.MULTILINE)
    assert "width: 100%;" in rule and "height: auto;" in rule and "min-width" not in rule
    assert page.count("<table") == len(re.findall(r'<div class="scroll"[^>]*>\s*<table', page))
    pixels = {"px": 1, "rem": REM}
    rules = re.sub(r"@media[^{]*", "", style)
    for prefix, size, unit in re.findall(r"([\w-]*)\bwidth: ([\d.]+)(px|rem)", rules):
        assert prefix == "max-" or float(size) * pixels[unit] <= PHONE - MARGINS
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
