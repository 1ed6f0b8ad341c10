"""Processes of a CPU that share one model: seconds per step of ddp and fsdp with 2 processes of one
thread each against one process with two threads, on the same batches; peak memory of a rank of 4
with fsdp; and the time for which a checkpoint stops training, written at once or in the background.

    python -m benchmarks.sharded_training [--rounds 3] [--layers 6] [--dim 384] [--save]

Each contestant is a run of `train.py`, which take turns. Memory is the peak of the process, with
the libraries that it imports: `base` is that of a run of a tiny model.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import machine, save
from benchmarks.train_runs import train

LAYOUTS = {
    "one": ["trainer=default"],
    "ddp": ["trainer=ddp", "trainer.devices=2"],
    "fsdp": ["trainer=fsdp", "trainer.devices=2"],
}
STEPS, SAVED = 10, 5  # steps of a run, and the step after which it saves


def run(folder: Path, words: list[str], layers: int, dim: int) -> dict[str, float]:
    """Trains a run; returns seconds of a step, seconds for which the checkpoint of step SAVED stops
    training, and the peak memory of the first rank in MiB.
    """
    line = [
        *("data.seq_len=256", "data.batch_size=4", "model.vocab_size=16384"),
        *(f"model.layers={layers}", f"model.dim={dim}", f"attn.heads={dim // 64}"),
        *(f"trainer.max_steps={STEPS}", f"trainer.checkpoint_every={SAVED}", *words),
    ]
    rows, summary = train(folder, line)
    seconds = {step: row["seconds_per_step"] for step, row in rows.items()}
    times = {step: row["time"] for step, row in rows.items()}
    return {
        "step": statistics.median(seconds[step] for step in range(3, STEPS + 1)),
        "stop": times[SAVED + 1] - times[SAVED] - seconds[SAVED + 1],
        "memory": summary["peak_memory_bytes"] / 2**20,
    }


def measure(rounds: int, layers: int, dim: int) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(rounds):
            for layout, words in LAYOUTS.items():
                found.setdefault(layout, []).append(run(folder, words, layers, dim))
            background = [*LAYOUTS["fsdp"], "checkpoints.asynchronous=true"]
            found.setdefault("background", []).append(run(folder, background, layers, dim))
        four = run(folder, ["trainer=fsdp", "trainer.devices=4"], layers, dim)["memory"]
        base = run(folder, ["trainer=default"], 1, 64)["memory"]
    one = [each["step"] for each in found["one"]]
    peak = statistics.median(each["memory"] for each in found["one"])
    return {
        "speed_of_one_process": {
            layout: statistics.median(
                a / each["step"] for a, each in zip(one, found[layout], strict=True)
            )
            for layout in ("ddp", "fsdp")
        },
        "seconds_per_step": {
            layout: statistics.median(each["step"] for each in runs)
            for layout, runs in found.items()
        },
        "seconds_stopped": {
            layout: statistics.median(each["stop"] for each in found[layout])
            for layout in ("one", "fsdp", "background")
        },
        "peak_mib": {"one": peak, "of a rank of four": four, "base": base},
        "share_of_memory": (four - base) / (peak - base),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    results = measure(args.rounds, args.layers, args.dim)
    print(json.dumps(results, indent=2))
    if args.save:
        save("sharded_training", machine(), results)


if __name__ == "__main__":
    main()
