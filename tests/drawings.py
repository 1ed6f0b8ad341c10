"""What a reader sees of a matplotlib figure."""

import itertools

UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def assert_ticks_are_exact(figure, counted=()):
    """Every label is the number at which its tick is, to a thousandth of the distance between
    ticks; on axes whose label is in `counted` all of them are whole numbers.
    """
    figure.draw_without_rendering()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [tick.label1.get_text() for tick in axis.get_major_ticks()]
            places = axis.get_majorticklocs().tolist()
            if axis.get_major_formatter().get_offset() or not all(
                read(label) is not None for label in labels
            ):
                continue  # of names, or of differences to a number at the rim
            step = min((abs(b - a) for a, b in itertools.pairwise(places)), default=1.0)
            for label, place in zip(labels, places, strict=True):
                assert abs(read(label) - place) <= 1e-3 * step, (
                    axis.get_label_text(),
                    labels,
                    places,
                )
            if axis.get_label_text() in counted:
                assert all(place == round(place) for place in places), (
                    axis.get_label_text(),
                    places,
                )


def read(label: str) -> float | None:
    """The number that a label states."""
    unit = UNITS.get(label[-1:], 1.0)
    try:
        return unit * float(
            label.rstrip("".join(UNITS)).replace(",", "").replace("\N{MINUS SIGN}", "-")
        )
    except ValueError:
        return None
