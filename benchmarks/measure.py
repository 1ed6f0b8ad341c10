"""Interleaved timing of functions on a machine with other load, and saving of results.

A round is one run of each contestant, so that a slow minute affects all of them. Results are
medians of ratios within a round.
"""

import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "x-transformers", "litgpt", "liger-kernel")


CLOCKS = {
    "wall": time.perf_counter,
    "cpu": time.process_time,
}  # cpu: of all threads, so compare it with one thread


def seconds(run: Callable[[], Any], clock: str = "wall") -> float:
    start = CLOCKS[clock]()
    run()
    return CLOCKS[clock]() - start


def rounds(
    contestants: Mapping[str, Callable[[], Any]], count: int, warm: int = 1, clock: str = "wall"
) -> dict[str, list[float]]:
    """Returns the seconds of each contestant in each of `count` rounds; every other round is
    reversed.
    """
    for _ in range(warm):
        for run in contestants.values():
            run()
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(count):
        order = list(contestants) if i % 2 == 0 else list(contestants)[::-1]
        for name in order:
            taken[name].append(seconds(contestants[name], clock))
    return taken


def ratio(slow: list[float], fast: list[float]) -> float:
    """Returns how many times faster `fast` is, the median over rounds."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def machine(threads: int | None = None) -> dict[str, Any]:
    """Returns the machine, the versions and the command of a measurement."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "command": (
            f"python -m benchmarks.{Path(sys.argv[0]).stem} {shlex.join(sys.argv[1:])}".strip()
        ),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads or torch.get_num_threads(),
        "load_average_at_the_end": [round(load, 2) for load in os.getloadavg()],
        "versions": versions,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def save(name: str, about: Mapping[str, Any], figures: Any) -> Path:
    """Writes benchmarks/results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**about, "figures": figures}, indent=1) + "\n")
    return path
