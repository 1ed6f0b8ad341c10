"""Error rates of the sequential rule by simulation: the share of changes that are kept and
discarded, and the pairs of runs that this takes, by the effect in standard deviations of one pair's
difference; next to the fixed number of pairs with which a paired t test has a power of 80 %.

    python -m benchmarks.sequential_rule [--draws 10000] [--looks 100] [--save]
"""

import argparse
import json
from typing import Any

import numpy as np

from benchmarks.measure import machine, save
from xformer_kit.study.power import seeds_needed
from xformer_kit.study.sequential import threshold

EFFECTS = (-0.1, 0.0, 0.25, 0.5, 1.0, 2.0, 4.0)  # improvements


def simulate(effect: float, draws: int, looks: int) -> dict[str, Any]:
    """Looks at the differences after each pair, up to a number of them."""
    x = np.random.default_rng(0).normal(effect, 1.0, (draws, looks))
    count = np.arange(1, looks + 1)
    mean = np.cumsum(x, 1) / count
    sd = np.sqrt(np.maximum(0, np.cumsum(x * x, 1) - count * mean**2) / np.maximum(1, count - 1))
    limits = np.array([threshold(int(n)) for n in count])
    decidable = np.isfinite(limits)
    half = np.full_like(mean, np.inf)
    half[:, decidable] = limits[decidable] * (sd / np.sqrt(count))[:, decidable]
    first = [_first(mean - half > 0), _first(mean + half < 0)]
    ended = np.minimum(*first)
    decided = ended[ended <= looks]
    return {
        "kept": float((first[0] < first[1]).mean()),
        "discarded": float((first[1] < first[0]).mean()),
        "pairs": float(np.median(decided)) if len(decided) else None,
        "fixed": seeds_needed(1.0, abs(effect)) if effect else None,
    }


def _first(found: np.ndarray) -> np.ndarray:
    """The number of pairs at the first look that is true; one more than all looks if none is."""
    return np.where(found.any(1), found.argmax(1) + 1, found.shape[1] + 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--looks", type=int, default=100)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    results = {str(effect): simulate(effect, args.draws, args.looks) for effect in EFFECTS}
    print(json.dumps(results, indent=2))
    if args.save:
        save("sequential_rule", machine(), results)


if __name__ == "__main__":
    main()
