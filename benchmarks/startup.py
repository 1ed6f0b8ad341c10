"""Time until `--help`, until a config error, and until a model is built.

    python -m benchmarks.startup [--rounds 7] [--clock cpu] [--save]

`python train.py --help` and a config error are compared with `import torch` in its own process,
in interleaved rounds; the result is the median of the differences within a round. A default model
is built in a fresh process, after the imports.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import machine, save

HERE = Path(__file__).resolve().parents[1]
BUILD = """
import json, time
from xformer_kit import build, compose
import xformer_kit.config, xformer_kit.api
def timed(work):
    before = time.perf_counter(), time.process_time()
    made = work()
    return made, {"wall": time.perf_counter() - before[0], "cpu": time.process_time() - before[1]}
config, composing = timed(lambda: compose([]))
_, building = timed(lambda: build(config, vocab_size=256))
print(json.dumps({"composing": composing, "building": building}))
"""
LINES = {
    "import torch": ["-c", "import torch"],
    "train.py --help": ["train.py", "--help"],
    "a config error": ["train.py", "attn.heads=7", "mask.windw=3"],
}


def child_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(arguments: list[str]) -> tuple[dict[str, float], str]:
    """Returns the seconds of a process on both clocks, and its output."""
    wall, cpu = time.perf_counter(), child_cpu()
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=HERE, env=environment, capture_output=True, text=True
    )
    return {"wall": time.perf_counter() - wall, "cpu": child_cpu() - cpu}, done.stdout


def measure(count: int, clock: str) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in LINES}
    made: dict[str, list[float]] = {"composing": [], "building": []}
    for name in LINES:
        run(LINES[name])  # the first run compiles and reads the files
    for i in range(count):
        for name in LINES if i % 2 else reversed(LINES):
            taken[name].append(run(LINES[name])[0][clock])
        said = json.loads(run(["-c", BUILD])[1])
        for name in made:
            made[name].append(said[name][clock])
    torch, *others = taken
    figures = {f"seconds of {torch}": statistics.median(taken[torch])}
    for name in others:
        beyond = (a - b for a, b in zip(taken[name], taken[torch], strict=True))
        figures[f"seconds of {name} beyond {torch}"] = statistics.median(beyond)
    figures["seconds of composing the default config"] = statistics.median(made["composing"])
    figures["seconds of building the default model after imports"] = statistics.median(
        made["building"]
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: steady while other processes run",
    )
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/startup.json")
    options = parser.parse_args()
    figures = measure(options.rounds, options.clock)
    for name, value in figures.items():
        print(f"{name:55s} {value:6.3f}")
    if options.save:
        print(f"written to {save('startup', machine() | {'clock': options.clock}, figures)}")


if __name__ == "__main__":
    main()
