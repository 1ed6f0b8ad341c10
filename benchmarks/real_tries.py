"""The sequential rule on real runs: tries of a composition against itself, whose keeps are false,
and of changes whose effect the whole pool measures; next to the fixed number of pairs with which a
paired t test has a power of 80 %.

    python train.py study=norm_placement study.claim=null study.budget=null study.name=tries \\
      study.seeds=120 study.max_runs=400 'study.baseline={arch: {}}' \\
      'study.factors={arch: {layernorm: {norm: layer}, mlp: {ffn: mlp, ffn.expand: 4}}}' \\
      model.dim=32 attn.heads=2 model.layers=2 trainer.max_steps=80 trainer.val_every=null \\
      trainer.sample=false data.seq_len=32 data.batch_size=8 tokenizer.vocab_size=512 \\
      schedule.warmup=10 logger=none
    python -m benchmarks.real_tries outputs/studies/tries/runs.csv [--save]

A try draws its pairs from the pool: of a change, pairs with one seed; of a composition against
itself, two runs of other seeds. Tries of one permutation share no run.
"""

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import machine, save
from xformer_kit.study.power import seeds_needed
from xformer_kit.study.sequential import always_valid_interval, decide

PAIRS = 20  # the largest number of a try, as of `xformer try`
FIRST = 2  # pairs at the first look


def pool(path: Path) -> dict[str, dict[int, float]]:
    """Returns {variant: {seed: validation loss}} of a study's runs.csv."""
    found: dict[str, dict[int, float]] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        found.setdefault(row["variant"], {})[int(row["seed"])] = float(row["val/loss"])
    return found


def drawn(differences: np.ndarray, tries: int, pairs: int) -> Iterator[np.ndarray]:
    """Yields the differences of each try: without replacement until the pool is used up."""
    rng = np.random.default_rng(0)
    while tries > 0:
        order = rng.permutation(len(differences))
        for start in range(0, len(order) - pairs + 1, pairs):
            if (tries := tries - 1) >= 0:
                yield differences[order[start : start + pairs]]


def against_itself(values: np.ndarray, tries: int) -> Iterator[np.ndarray]:
    """Yields differences of runs of one composition, of two runs with other seeds each."""
    rng = np.random.default_rng(0)
    while tries > 0:
        shuffled = rng.permutation(values)
        half = len(values) // 2
        each = shuffled[:half] - shuffled[half : 2 * half]
        for start in range(0, half - PAIRS + 1, PAIRS):
            if (tries := tries - 1) >= 0:
                yield each[start : start + PAIRS]


def outcome(differences: np.ndarray) -> tuple[str, int]:
    """The decision of a try, and its pairs: a look after each pair."""
    for count in range(FIRST, len(differences) + 1):
        decision = decide(always_valid_interval(differences[:count]), sign=1)
        if decision != "undecided":
            return decision, count
    return "undecided", len(differences)


def summary(tries: list[np.ndarray]) -> dict[str, Any]:
    """Counts of the decisions, and the median number of pairs of those that decided."""
    found = [outcome(each) for each in tries]
    decided = [count for decision, count in found if decision != "undecided"]
    names = [decision for decision, _ in found]
    return {
        "tries": len(tries),
        **{name: names.count(name) for name in ("keep", "discard", "undecided")},
        "pairs": float(np.median(decided)) if decided else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="runs.csv of the study")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    (name, base), *changes = pool(args.runs).items()
    values = np.array([*base.values()])
    results = {f"{name} against itself": summary([*against_itself(values, 40)])}
    for change, own in changes:
        x = np.array([own[seed] - base[seed] for seed in sorted(base.keys() & own.keys())])
        effect, sd = float(x.mean()), float(x.std(ddof=1))
        results[change] = {
            "effect": effect,
            "effect / sd of a pair": abs(effect) / sd,
            "fixed": seeds_needed(sd, abs(effect)),
            **summary([*drawn(x, 20, PAIRS)]),
        }
    print(json.dumps(results, indent=2))
    if args.save:
        save("real_tries", machine(), results)


if __name__ == "__main__":
    main()
