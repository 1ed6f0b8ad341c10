"""How fair is the comparison? Sentences on what was matched, how variants were tuned, and in what
else they differ.
"""

from xformer_kit.study.budget import SHOWN
from xformer_kit.study.figures import Metric
from xformer_kit.study.report.arms import Arm
from xformer_kit.study.results import Results

MISSED = 0.1  # share by which runs of one machine differ in time, and nobody need be told
SIZES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def compact(number: float | None) -> str:
    """Three digits and a unit: 987, 12.3k, 4.56M."""
    if number is None:
        return ""
    unit = next((u for u, size in reversed(SIZES.items()) if abs(number) >= 0.9995 * size), "")
    if not unit:
        return f"{number:.3g}"
    return f"{number / SIZES[unit]:#.3g}".rstrip(".") + unit


def exact(number: float) -> str:
    """All digits and a unit, as ticks need them: 10M, 10.05T."""
    unit = next((u for u, size in reversed(SIZES.items()) if abs(number) >= 0.999999 * size), "")
    return f"{number / SIZES.get(unit, 1.0):.6g}{unit}"


def share(part: float, sign: bool = True) -> str:
    """A share in percent, with two digits below 1."""
    return (
        f"{100 * part:{'+' if sign else ''}.2g} %"
        if abs(part) < 0.1
        else f"{100 * part:{'+' if sign else ''}.0f} %"
    )


def relative(arm: Arm, baseline: Arm, name: str) -> float | None:
    """By which share a variant costs more than the baseline."""
    mine, its = arm.cost[name], baseline.cost[name]
    return mine / its - 1 if mine is not None and its else None


def matched(results: Results, arms: list[Arm]) -> str:
    """What variants have in common with the baseline, and how well."""
    budget = results.study["budget"]
    what, others = budget["match"], arms[1:]
    if what == "none":
        return "No budget was matched: variants cost what their parts cost." + _largest(
            arms, "params", "parameters"
        )
    said = SHOWN[what][0].upper() + SHOWN[what][1:]
    how = _within(
        f"{said} were",
        {arm.name: arm.off for arm in others},
        f" by {budget['by']}",
        budget["tolerance"],
    )
    return (
        how
        if what != "seconds"
        else (
            f"{how} They were planned from the time of a"
            f" step.{_largest(arms, 'seconds', 'measured time')}"
        )
    )


def apart(results: Results, arms: list[Arm]) -> str:
    """What is to be said with the answer where runs that were to take the same time did not."""
    budget = results.study["budget"]
    if budget["match"] != "seconds":
        return ""
    off = {arm.name: o for arm in arms[1:] if (o := relative(arm, arms[0], "seconds"))}
    missed = [
        f"{name} {share(o)}" for name, o in off.items() if abs(o) > max(MISSED, budget["tolerance"])
    ]
    if not missed:
        return ""
    return (
        "But the runs did not take the same time, as was asked for: beside the baseline's,"
        f" {' and '.join(missed)}. So this is no comparison at equal seconds. Give the study"
        " another name on a machine that does nothing else, or match flops."
    )


def _within(what: str, offs: dict[str, float], by: str, tolerance: float) -> str:
    if not offs:
        return f"{what} to be matched; there is no variant beside the baseline."
    worst = max(offs, key=lambda name: abs(offs[name]))
    allowed = f"tolerance {100 * tolerance:g} %"
    if offs[worst] == 0:
        return f"{what} equal to the baseline's, exactly{by and f',{by}'} ({allowed})."
    most = f"{share(abs(offs[worst]), sign=False)} ({worst}; {allowed})"
    return f"{what} brought to the baseline's{by}: no variant misses it by more than {most}."


def _largest(arms: list[Arm], name: str, said: str) -> str:
    """By how much the variant costs that is furthest from the baseline."""
    off = {arm.name: o for arm in arms[1:] if (o := relative(arm, arms[0], name))}
    if not off:
        return ""
    worst = max(off, key=lambda one: abs(off[one]))
    return f" In {said} the largest difference to the baseline is {share(off[worst])} ({worst})."


def tuning(results: Results, arms: list[Arm], measured: Metric) -> list[str]:
    """That each variant stands at its own best point, and where that is at the end of what was
    tried.
    """
    tune = results.study.get("tune") or {}
    if not tune:
        return []
    count = max(len(arm.points) for arm in arms)
    found = [
        f"Every variant was run at the same {count} points of {' and '.join(tune)}, and is compared"
        f" at its own best: the best mean of {measured.name} over seeds, among the points where the"
        " fewest runs diverged. The point is chosen on the seeds that are compared, for all"
        " variants alike."
    ]
    for arm in arms:
        chosen = dict(word.split("=", 1) for word in arm.best.tuned)
        for key, values in tune.items():
            end = _end(chosen.get(key), values)
            if end and arm.best.interval.mean is not None:
                found.append(
                    f"The best {key} of {arm.name}, {chosen[key]}, is the {end} that was tried: it"
                    " may do better beyond."
                )
    return found


def _end(chosen: str | None, values: list) -> str | None:
    """Whether the chosen one of three numbers or more is the smallest or the largest."""
    try:
        numbers, mine = sorted(float(value) for value in values), float(chosen)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    if len(numbers) < 3 or numbers[0] < mine < numbers[-1]:
        return None
    return "smallest" if mine == numbers[0] else "largest"


def notes(results: Results, arms: list[Arm]) -> list[str]:
    """In what runs differ that should be alike: data, kernels, machines."""
    found = []
    outcomes = {
        arm.name: [o for o in results.of(arm.best.index) if o.status == "finished"] for arm in arms
    }
    if len({o.facts.get("data_fingerprint") for each in outcomes.values() for o in each}) > 1:
        found.append("Runs did not all see the same data: their fingerprints differ.")
    kernels = {
        name: ", ".join(sorted({k for o in each for k in o.facts.get("kernels", {}).values()}))
        for name, each in outcomes.items()
        if each
    }
    if len(set(kernels.values())) > 1:
        said = "; ".join(f"{name}: {kernel or 'none'}" for name, kernel in kernels.items())
        found.append(
            "Scores were computed by different kernels, so speed and memory are also theirs"
            f" ({said})."
        )
    early = sum(bool(o.facts.get("stopped")) for each in outcomes.values() for o in each)
    if early:
        found.append(
            f"{early} of the runs ended before their last step, and are compared by what they had"
            " reached by then."
        )
    kinds = sorted(
        {
            str(o.facts.get("devices", {}).get("kind", ""))
            for each in outcomes.values()
            for o in each
        }
    )
    if len(kinds) > 1:
        found.append(
            f"Runs were made on different devices ({', '.join(kinds)}): speed, time and memory do"
            " not compare."
        )
    return found
