"""Runs the benchmarks one after another, each in its own process, and saves their figures in
benchmarks/results.

    python -m benchmarks [--only NAME ...] [--quick]

A benchmark that fails does not stop the others; failures are listed at the end, with exit code 1.
`--quick` runs the fewest rounds, to test that all benchmarks run; its figures are not saved.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Flags(NamedTuple):
    """Command-line arguments of a benchmark."""

    whole: str
    quick: str


BENCHMARKS = {
    "startup": Flags("--save", "--rounds 1"),
    "training_speed": Flags("--save", "--rounds 1"),
    "gpu_training_speed": Flags("--save", "--rounds 1"),
    "gpu_step": Flags("--save", "--tiny --rounds 1"),
    "decoding_speed": Flags("--save", "--rounds 1 --tokens 16"),
    "seq2seq_speed": Flags("--save", "--rounds 1"),
    "products": Flags("--save", "--rounds 1"),
    "experts": Flags("--save", "--rounds 1"),
    "cross_entropy": Flags("--save", "--pairs 1"),
    "kernel_speed": Flags("--save", "--rounds 1 --no-memory"),
    "recurrent_speed": Flags("--save", "--rounds 1 --tokens 128"),
    "recall": Flags(
        "--save", "--runs outputs/recall_quick --more trainer.max_steps=2 schedule.warmup=1"
    ),
    "data": Flags("--save", "--megabytes 2 --repeat 1"),
    "trainer_overhead": Flags("--save", "--pairs 1 --steps 40"),
    "sequential_rule": Flags("--save", "--draws 100 --looks 10"),
    "checkpointed_activations": Flags("--save", "--rounds 1 --layers 2 --tokens 64"),
    "sharded_training": Flags("--save", "--rounds 1 --layers 2 --dim 64"),
}

OF_A_RUN = {
    "translation",
    "findings",
    "mup_transfer",
    "real_tries",
}  # those that ask for a run that was trained, and are called by hand


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME"
    )
    parser.add_argument("--quick", action="store_true", help="the fewest rounds; nothing is kept")
    given = parser.parse_args()
    failed = []
    for name in given.only:
        flags = BENCHMARKS[name].quick if given.quick else BENCHMARKS[name].whole
        print(f"\npython -m benchmarks.{name} {flags}", flush=True)
        began = time.perf_counter()
        code = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", *flags.split()], cwd=ROOT
        ).returncode
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        if code:
            failed.append(f"{name} (exit code {code})")
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
