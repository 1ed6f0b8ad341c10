"""Assertions on the tick labels of a matplotlib figure."""

import itertools

UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def assert_ticks_are_exact(figure, counted=()):
    """Asserts that every tick label is the number at its tick, to a thousandth of the distance
    between ticks, and that on axes whose label is in `counted` all ticks are whole numbers.
    """
    figure.draw_without_rendering()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [tick.label1.get_text() for tick in axis.get_major_ticks()]
            places = axis.get_majorticklocs().tolist()
            if axis.get_major_formatter().get_offset() or not all(
                number_of(label) is not None for label in labels
            ):
                continue  # labels are names, or differences to an offset
            step = min((abs(b - a) for a, b in itertools.pairwise(places)), default=1.0)
            for label, place in zip(labels, places, strict=True):
                assert abs(number_of(label) - place) <= 1e-3 * step, (
                    axis.get_label_text(),
                    labels,
                    places,
                )
            if axis.get_label_text() in counted:
                assert all(place == round(place) for place in places), (
                    axis.get_label_text(),
                    places,
                )


def number_of(label: str) -> float | None:
    """Returns the number in a label; None if it is not a number."""
    unit = UNITS.get(label[-1:], 1.0)
    try:
        return unit * float(
            label.rstrip("".join(UNITS)).replace(",", "").replace("\N{MINUS SIGN}", "-")
        )
    except ValueError:
        return None
