"""Activation checkpointing on a CPU: seconds per step and peak memory of a run with each choice of
model.checkpoint_activations, as ratios to a run without it.

    python -m benchmarks.checkpointed_activations [--rounds 3] [--layers 12] [--tokens 1024]

Each contestant is a run of `train.py` with micro-batches of 8 sequences, and they take turns.
Memory is the peak of the process above that of a run of a tiny model.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import machine, save
from benchmarks.train_runs import train

CHOICES = ("none", "2", "selective", "block")
STEPS = 5


def run(folder: Path, choice: str, layers: int, tokens: int) -> tuple[float, float]:
    """Trains a run; returns the median of its seconds per step, and its peak memory in MiB."""
    line = [
        *(f"data.seq_len={tokens}", "data.batch_size=8", f"trainer.max_steps={STEPS}"),
        *(f"model.layers={layers}", "model.dim=128", f"model.checkpoint_activations={choice}"),
    ]
    rows, summary = train(folder, line)
    seconds = [row["seconds_per_step"] for step, row in rows.items() if step > 1]
    return statistics.median(seconds), summary["peak_memory_bytes"] / 2**20


def measure(rounds: int, layers: int, tokens: int) -> dict[str, Any]:
    found: dict[str, list[tuple[float, float]]] = {choice: [] for choice in CHOICES}
    with tempfile.TemporaryDirectory() as name:
        base = run(Path(name), "none", 1, 16)[1]
        for _ in range(rounds):
            for choice in CHOICES:
                found[choice].append(run(Path(name), choice, layers, tokens))
    none = found["none"]
    pairs = {choice: list(zip(runs, none, strict=True)) for choice, runs in found.items()}
    return {
        "time": {
            choice: statistics.median(a[0] / b[0] for a, b in of) for choice, of in pairs.items()
        },
        "memory": {
            choice: statistics.median((a[1] - base) / (b[1] - base) for a, b in of)
            for choice, of in pairs.items()
        },
        "seconds_per_step": statistics.median(seconds for seconds, _ in none),
        "peak_mib": statistics.median(peak for _, peak in none),
        "base_mib": base,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    results = measure(args.rounds, args.layers, args.tokens)
    print(json.dumps(results, indent=2))
    if args.save:
        save("checkpointed_activations", machine(), results)


if __name__ == "__main__":
    main()
