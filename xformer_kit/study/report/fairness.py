"""Sentences on the fairness of a comparison: matched budgets, tuning, and other differences."""

from collections.abc import Mapping

from xformer_kit.study.budget import COST_NAMES
from xformer_kit.study.numbers import percent
from xformer_kit.study.results import Results
from xformer_kit.study.variants import VariantResult

TIME_TOLERANCE = 0.1  # relative differences in time up to this are not reported


def budget_sentence(results: Results, variants: list[VariantResult]) -> str:
    """The cost that was matched, and the largest difference from the baseline. variants: of all
    sizes, at each the baseline first; differences in other costs are those at the last size.
    """
    budget = results.study["budget"]
    largest = variants[max(i for i, one in enumerate(variants) if one.verdict is None) :]
    if budget["match"] == "none":
        return "No budget was matched." + _largest_difference(largest, "params", "parameters")
    text = _remaining_differences(variants[1:], budget)
    if budget["match"] == "seconds":
        text += " They were planned from the measured time of a step."
        text += _largest_difference(largest, "seconds", "measured time")
    return text


def _remaining_differences(variants: list[VariantResult], budget: Mapping) -> str:
    """The sentence on the remaining differences in the matched cost."""
    cost = COST_NAMES[budget["match"]].capitalize().replace("flops", "FLOPs")
    if not variants:
        return f"{cost} were to be matched; there is no variant other than the baseline."
    worst = max(variants, key=lambda variant: abs(variant.off))
    allowed = f"tolerance {100 * budget['tolerance']:g} %"
    if worst.off == 0:
        return f"{cost} are equal to the baseline's, matched by {budget['by']} ({allowed})."
    return (
        f"{cost} were matched to the baseline's by {budget['by']}: the largest remaining difference"
        f" is {percent(abs(worst.off), '')} ({worst.name}; {allowed})."
    )


def _relative_costs(variants: list[VariantResult], cost: str) -> dict[str, float]:
    """Name -> relative difference of a cost to the baseline's, without variants of equal cost."""
    base, *others = variants
    return {one.name: share for one in others if (share := one.relative(base, cost))}


def _largest_difference(variants: list[VariantResult], cost: str, words: str) -> str:
    """A sentence on the variant with the largest difference in a cost."""
    if not (shares := _relative_costs(variants, cost)):
        return ""
    worst = max(shares, key=lambda name: abs(shares[name]))
    share = percent(shares[worst])
    return f" The largest difference in {words} from the baseline is {share} ({worst})."


def unequal_times(results: Results, variants: list[VariantResult]) -> str:
    """A warning for the headline if runs with matched time took different times; else empty."""
    budget = results.study["budget"]
    missed = [
        f"{name} {percent(share)}"
        for name, share in _relative_costs(variants, "seconds").items()
        if abs(share) > max(TIME_TOLERANCE, budget["tolerance"])
    ]
    if budget["match"] != "seconds" or not missed:
        return ""
    return (
        "Warning: the times of the runs are not equal, although seconds were matched; compared with"
        f" the baseline, {' and '.join(missed)}. Repeat the study under another name on an idle"
        " machine, or match flops."
    )


def tuning_sentences(results: Results, variants: list[VariantResult]) -> list[str]:
    """Sentences on how variants were tuned, and on best points at the end of a range."""
    tune = results.study.get("tune") or {}
    if not tune:
        return []
    count = max(len(variant.points) for variant in variants)
    found = [
        f"Every variant was run at the same {count} points of {' and '.join(tune)}, and is compared"
        f" at its own best point: the best mean of {results.metric.name} over seeds, among the"
        " points where the fewest runs diverged. For all variants, the point is selected on the"
        " same seeds that are compared."
    ]
    for variant in variants:
        chosen = dict(word.split("=", 1) for word in variant.best.tuned)
        for key, values in tune.items():
            end = _end_of_range(chosen.get(key), values)
            if end and variant.mean is not None:
                found.append(
                    f"The best {key} of {variant.name}, {chosen[key]}, is the {end} that was tried:"
                    " the optimum may be outside of the range."
                )
    return found


def _end_of_range(chosen: str | None, values: list) -> str | None:
    """ "smallest" or "largest" if the chosen value is an end of at least three numbers."""
    try:
        numbers, number = sorted(float(value) for value in values), float(chosen)
    except (TypeError, ValueError):
        return None
    ends = {numbers[-1]: "largest", numbers[0]: "smallest"}
    return ends.get(number) if len(numbers) > 2 else None


def comparability_notes(results: Results, variants: list[VariantResult]) -> list[str]:
    """Notes on differences of the runs in data, kernels, length and devices."""
    outcomes = {
        one.name: [o for o in results.outcomes_of(one.best.index) if o.status == "finished"]
        for one in variants
    }
    every = [outcome for each in outcomes.values() for outcome in each]
    found = []
    if len({one.facts.get("data_fingerprint") for one in every}) > 1:
        found.append("Not all runs used the same data: their fingerprints differ.")
    kernels = {
        name: ", ".join(sorted({k for one in each for k in one.facts.get("kernels", {}).values()}))
        for name, each in outcomes.items()
        if each
    }
    if len(set(kernels.values())) > 1:
        which = "; ".join(f"{name}: {kernel or 'none'}" for name, kernel in kernels.items())
        found.append(
            f"Runs used different attention kernels, which also changes speed and memory ({which})."
        )
    if early := sum(bool(one.facts.get("stopped")) for one in every):
        found.append(
            f"{early} of the runs ended before their last step; they are compared by their last"
            " values."
        )
    devices = sorted({str(one.facts.get("devices", {}).get("kind", "")) for one in every})
    if len(devices) > 1:
        found.append(
            f"Runs used different devices ({', '.join(devices)}): speed, time and memory are not"
            " comparable."
        )
    return found
