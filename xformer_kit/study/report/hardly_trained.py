"""A note on runs that have hardly been trained."""

from statistics import fmean

from xformer_kit.metrics import VAL_LOSS
from xformer_kit.study.results import Results
from xformer_kit.study.variants import VariantResult

NEAR = 0.05  # relative distance


def hardly_trained(results: Results, variants: list[VariantResult]) -> str:
    """The sentence on runs whose validation loss is near that of a model that has only the
    frequencies of tokens (`unigram_loss` in summary.json), or above it; empty if any variant's loss
    is lower, or if one of the two is not known.
    """
    losses, references = list[float](), list[float]()
    for variant in variants:
        facts = [o.facts for o in results.outcomes_of(variant.best.index) if o.status == "finished"]
        known = [x for x in facts if x.get("unigram_loss") and VAL_LOSS in x]
        if facts and len(known) < len(facts):
            return ""
        if known:
            losses.append(fmean(one[VAL_LOSS] for one in known))
            references.append(fmean(one["unigram_loss"] for one in known))
    shares = [loss / unigram for loss, unigram in zip(losses, references, strict=True)]
    if not shares or min(shares) < 1 - NEAR:
        return ""
    percent = f"{100 * NEAR:g} %"
    where = f"at most {percent} below"
    if max(shares) <= 1 + NEAR:
        where = f"within {percent} of"
    elif min(shares) >= 1:
        where = "above"
    return (
        f"These runs are hardly trained: their validation loss ({_range(losses)}) is {where} that"
        f" of a model that has only the frequencies of tokens ({_range(references)})."
    )


def _range(values: list[float]) -> str:
    """The smallest and the largest value with two decimals; one number if they are equal."""
    return " to ".join(dict.fromkeys(f"{x:.2f}" for x in (min(values), max(values))))
