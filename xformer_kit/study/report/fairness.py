"""The fairness of a comparison: sentences on what was matched, how variants were tuned, and in what
else they differ.
"""

from collections.abc import Mapping

from xformer_kit.study.budget import SHOWN
from xformer_kit.study.report.numbers import percent
from xformer_kit.study.report.variants import VariantResult
from xformer_kit.study.results import Outcome, Results

MISSED = 0.1  # share by which runs of one machine differ in time without being reported


def matched(results: Results, variants: list[VariantResult]) -> str:
    """What variants have in common with the baseline, and how well."""
    budget = results.study["budget"]
    if budget["match"] == "none":
        return "No budget was matched: variants cost what their components cost." + _largest(
            variants, "params", "parameters"
        )
    text = _missed(variants[1:], budget)
    if budget["match"] == "seconds":
        text += " They were planned from the time of a step."
        text += _largest(variants, "seconds", "measured time")
    return text


def _missed(variants: list[VariantResult], budget: Mapping) -> str:
    what = SHOWN[budget["match"]].capitalize().replace("flops", "FLOPs")
    if not variants:
        return f"{what} were to be matched; there is no variant other than the baseline."
    worst = max(variants, key=lambda variant: abs(variant.off))
    allowed = f"tolerance {100 * budget['tolerance']:g} %"
    if worst.off == 0:
        return f"{what} were equal to the baseline's, exactly, by {budget['by']} ({allowed})."
    return (
        f"{what} were brought to the baseline's by {budget['by']}: no variant misses it by more"
        f" than {percent(abs(worst.off), '')} ({worst.name}; {allowed})."
    )


def _shares(variants: list[VariantResult], cost: str) -> dict[str, float]:
    """Name -> by which share a variant costs more than the baseline, if it does not cost the
    same.
    """
    base, *others = variants
    return {one.name: share for one in others if (share := one.relative(base, cost))}


def _largest(variants: list[VariantResult], cost: str, words: str) -> str:
    """By how much the variant costs that is furthest from the baseline."""
    if not (shares := _shares(variants, cost)):
        return ""
    worst = max(shares, key=lambda name: abs(shares[name]))
    return (
        f" In {words} the largest difference to the baseline is {percent(shares[worst])} ({worst})."
    )


def unequal_times(results: Results, variants: list[VariantResult]) -> str:
    """A sentence for the answer if runs that were to take the same time did not."""
    budget = results.study["budget"]
    missed = [
        f"{name} {percent(share)}"
        for name, share in _shares(variants, "seconds").items()
        if abs(share) > max(MISSED, budget["tolerance"])
    ]
    if budget["match"] != "seconds" or not missed:
        return ""
    return (
        "But the runs did not take the same time, as was asked for: beside the baseline's,"
        f" {' and '.join(missed)}. So this is no comparison at equal seconds. Give the study"
        " another name on a machine that does nothing else, or match flops."
    )


def tuning(results: Results, variants: list[VariantResult]) -> list[str]:
    """That each variant is compared at its own best point, and whether that is at the end of what
    was tried.
    """
    tune = results.study.get("tune") or {}
    if not tune:
        return []
    count = max(len(variant.points) for variant in variants)
    found = [
        f"Every variant was run at the same {count} points of {' and '.join(tune)}, and is compared"
        f" at its own best: the best mean of {results.metric.name} over seeds, among the points"
        " where the fewest runs diverged. The point is chosen on the seeds that are compared, for"
        " all variants alike."
    ]
    for variant in variants:
        chosen = dict(word.split("=", 1) for word in variant.best.tuned)
        for key, values in tune.items():
            end = _end(chosen.get(key), values)
            if end and variant.mean is not None:
                found.append(
                    f"The best {key} of {variant.name}, {chosen[key]}, is the {end} that was tried:"
                    " it may do better beyond."
                )
    return found


def _end(chosen: str | None, values: list) -> str | None:
    """Whether the chosen one of three numbers or more is the smallest or the largest."""
    try:
        numbers, mine = sorted(float(value) for value in values), float(chosen)
    except (TypeError, ValueError):
        return None
    ends = {numbers[-1]: "largest", numbers[0]: "smallest"}
    return ends.get(mine) if len(numbers) > 2 else None


def notes(results: Results, variants: list[VariantResult]) -> list[str]:
    """In what runs differ that should be alike: data, kernels, devices."""
    outcomes = {
        one.name: [o for o in results.of(one.best.index) if o.status == "finished"]
        for one in variants
    }
    every = [outcome for each in outcomes.values() for outcome in each]
    found = []
    if len({one.facts.get("data_fingerprint") for one in every}) > 1:
        found.append("Runs did not all see the same data: their fingerprints differ.")
    kernels = {name: _kernels(each) for name, each in outcomes.items() if each}
    if len(set(kernels.values())) > 1:
        which = "; ".join(f"{name}: {kernel or 'none'}" for name, kernel in kernels.items())
        found.append(
            "Scores were computed by different kernels, so speed and memory are also theirs"
            f" ({which})."
        )
    if early := sum(bool(one.facts.get("stopped")) for one in every):
        found.append(
            f"{early} of the runs ended before their last step, and are compared by what they had"
            " reached by then."
        )
    devices = sorted({str(one.facts.get("devices", {}).get("kind", "")) for one in every})
    if len(devices) > 1:
        found.append(
            f"Runs were made on different devices ({', '.join(devices)}): speed, time and memory do"
            " not compare."
        )
    return found


def _kernels(outcomes: list[Outcome]) -> str:
    return ", ".join(sorted({k for o in outcomes for k in o.facts.get("kernels", {}).values()}))
