"""The noise of one run in a report: its standard deviation over seeds, of all sources of random
numbers and of each that `study.noise_floor` varied apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from xformer_kit.study.metric import Metric, decimals
from xformer_kit.study.noise import SOURCES
from xformer_kit.study.numbers import NONE
from xformer_kit.study.report.document import Table
from xformer_kit.study.results import Results
from xformer_kit.study.statistics import Estimate, standard_deviation
from xformer_kit.study.variants import runs_of


@dataclass(frozen=True)
class Noise:
    """The noise of one run of the baseline by one source of random numbers."""

    source: str  # one of SOURCES; empty: all of them
    runs: int
    sd: Estimate  # the standard deviation with its interval


def compared_runs(results: Results) -> Results:
    """The results without the runs of `study.noise_floor`, which are compared with nothing."""
    return results.select_variants(
        [i for i, variant in enumerate(results.variants) if not variant.get("source")]
    )


def noise_of(results: Results, values: Mapping[int, float]) -> list[Noise]:
    """The noise of the baseline from all sources, and from each that was varied apart. values:
    seed -> metric of its finished runs.
    """
    found = [Noise("", len(values), standard_deviation([*values.values()]))]
    first = values.get(results.seeds[0]) if results.seeds else None
    for i, variant in enumerate(results.variants):
        if source := variant.get("source"):
            own = runs_of("", results.outcomes_of(i), results.metric.name).values
            each = [*own.values(), *([] if first is None else [first])]
            found.append(Noise(source, len(each), standard_deviation(each)))
    return found


def noise_sentence(found: list[Noise], metric: Metric) -> str:
    """The noise of one run in words; empty for fewer than two runs."""
    everything, *apart = found
    if everything.sd.mean is None:
        return ""
    size, span = _cells(everything, metric)
    size = f"{size} {metric.unit}".strip() + f" (95 % CI {span})" * (span != NONE)
    text = f"The noise of one run, its standard deviation over seeds, is {size}."
    each = [
        f"{_cells(one, metric)[0]} by {SOURCES[one.source]}"
        for one in apart
        if one.sd.mean is not None
    ]
    return text + f" With only one source varied: {', '.join(each)}." * bool(each)


def _cells(one: Noise, metric: Metric) -> tuple[str, str]:
    """The standard deviation with as many digits as its size has, and its interval with as many.
    The interval is wide, and its digits would round small ones to 0.
    """
    if not one.sd.mean:
        return (NONE if one.sd.mean is None else "0"), NONE
    digits = decimals(one.sd.mean * metric.scale)
    mean, low, high = (metric.format(x, digits, unit=False) for x in one.sd)
    return mean, f"{low} to {high}"


def table(found: list[Noise], metric: Metric) -> Table:
    """The noise by source; empty if no source was varied apart."""
    rows = [[SOURCES.get(one.source, "all"), *_cells(one, metric), str(one.runs)] for one in found]
    return Table(
        "Noise of one run",
        ["varied", "sd", "95 % CI", "runs"],
        rows if len(found) > 1 else [],
        f"Standard deviation of {metric.title} of one run of the baseline, with its confidence"
        " interval (chi-squared). Two runs differ by 1.4 times as much. Sources that are not varied"
        " are as at the first seed. Each source is the only one that differs, so the variances"
        " need not add up to that of all.",
    )
