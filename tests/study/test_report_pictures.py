"""The pictures of a report: what their axes show."""

import pytest
from drawings import assert_ticks_are_exact
from studies import KINDS, changed, finished, study, variant

from xformer_kit.study.report.content import content
from xformer_kit.study.report.plots import pictures


@pytest.mark.parametrize("kind", KINDS)
def test_ticks_of_pictures_are_exact(kind):
    for picture in pictures(content(KINDS[kind]())):
        picture.draw(lambda figure: assert_ticks_are_exact(figure, ["optimizer step", "trial"]))


@pytest.mark.parametrize("flops", [1.02e15, 3.1e13, 987.0])
def test_ticks_of_costs_that_hardly_differ_are_exact(flops):
    known = [variant(flops=flops), changed("placement", "post", flops=1.04 * flops)]
    said = content(study(known, [finished(i, seed, 2.3 + 0.1 * i) for i in range(2) for seed in range(2)]))
    (picture,) = [one for one in pictures(said) if one.name == "cost flops"]
    picture.draw(assert_ticks_are_exact)


def test_a_variant_of_few_steps_is_within_the_axes_of_its_curves():
    known = [variant(), changed("placement", "post", steps=150)]
    said = content(
        study(known, [finished(i, seed, 2.3 + 4 * i, steps=(2000, 150)[i]) for i in range(2) for seed in range(2)])
    )

    def within(figure):
        (axes,) = figure.axes
        (low, high), short = axes.get_ylim(), min(axes.lines, key=lambda line: line.get_xdata()[-1])
        assert short.get_xdata()[-1] == 150 and low <= min(short.get_ydata()) <= high

    (picture,) = [one for one in pictures(said) if one.name == "curve train/loss"]
    picture.draw(within)
