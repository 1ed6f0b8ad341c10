"""Find the batch size: train for a few steps with 1, 2, 4, ... sequences until the next size does
not fit into memory, then with sizes between the last two. Lists the tokens per second and the peak
memory of each size, and proposes the smallest size that is within 5 % of the fastest.

Takes overrides as on train.py's command line; data.batch_size among them is replaced. One device
and one micro-batch per step. Writes nothing.

On a GPU, a size fits if it does not run out of memory. A CPU has no such error: a size fits if the
process uses at most --memory GiB, by default 3/4 of the machine's or the container's memory.
"""

import gc
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tasks import Config
from tasks.cli.command import format_bytes, format_count, import_files, print_result
from tasks.process.command_faults import refuse, too_small
from xformer_kit.registry import Fault, Faults, config_error
from xformer_kit.text import command_lines

SUMMARY = "the largest batch size that fits into memory, and the fastest"
EXAMPLES = """examples:
  xformer find-batch
  xformer find-batch model.dim=256 model.layers=8 --memory 8
  xformer find-batch data=text data.path=input.txt --max 64 --steps 3"""
BATCH_SIZE = "data.batch_size"
LARGEST, STEPS = 512, 5
WARM_UP = 2  # optimizer steps before those that are timed
NEAR = 0.95  # fraction of the highest speed that counts as equal to it
CPU_SHARE = 0.75  # of the memory of the machine
# Linux: writing "5" to the file resets the peak memory of the process (man 5 proc).
CLEAR_PEAK = Path("/proc/self/clear_refs")
CGROUP = Path("/sys/fs/cgroup/memory.max")  # bytes, or "max"; Linux, cgroup v2
OPTIONS = {
    "inputs* OVERRIDE": "overrides such as model.dim=256, as for python train.py",
    "--max N": f"the largest batch size to try ({LARGEST})",
    "--memory A": "GiB that may be used (the GPU's memory; on a CPU 3/4 of the machine's)",
    "--steps N": f"optimizer steps that are timed per size, after {WARM_UP} others ({STEPS})",
    "--json": "print plain data",
}


class Measurement(NamedTuple):
    batch_size: int
    tokens_per_second: float  # without padding, median over steps
    seconds_per_step: float  # median
    peak_memory_bytes: int  # allocated on the GPU; on a CPU, used by the process


class Limits(NamedTuple):
    largest: int  # sequences: --max, or the examples of the corpus
    memory: float  # bytes


def run(args: Any) -> int:
    refuse(_value_faults(args))
    from tasks.run.short_fit import single_device_config

    steps, most = args.steps or STEPS, args.max or LARGEST
    import_files(args.components)
    config = single_device_config(args.inputs, "find-batch")
    refuse(_batch_faults(config))
    limits = Limits(most, memory_limit(config) if args.memory is None else args.memory * 2**30)
    show = None if args.json else _print_row
    found, limits = measure_sizes(lambda size: measure(config, size, steps), limits, show)
    best = proposal(found)
    words = [word for word in args.inputs if word.lstrip("+").partition("=")[0] != BATCH_SIZE]
    command = command_lines.train(
        *words, f"{BATCH_SIZE}={best.batch_size}", components=args.components
    )
    data = {
        "sizes": [size._asdict() for size in found],
        "memory_limit_bytes": int(limits.memory),
        "largest": max(found).batch_size,
        "fastest": max(found, key=lambda size: size.tokens_per_second).batch_size,
        "command": command,
    }
    return print_result(args, data, _print_end, found, limits, command)


def _value_faults(args: Any) -> Faults:
    """Yields the faults of limits of the search."""
    yield from too_small(vars(args), max=1, steps=1)
    if args.memory is not None and not 0 < args.memory < math.inf:
        yield Fault("--memory", "must be above 0 GiB and finite", got=f"{args.memory:g}")


def _batch_faults(config: Config) -> Faults:
    """Yields the faults of options with which data.batch_size is not the batch of one pass."""
    if (tokens := config["data"].get("batch_tokens")) is not None:
        rule = "replaces data.batch_size, which xformer find-batch finds"
        yield Fault("data.batch_tokens", rule, got=tokens, fix="Try data.batch_tokens=null.")
    if (accumulate := config["trainer"].get("accumulate", "auto")) not in (1, "auto"):
        rule = "must be 1 or auto, since memory limits the micro-batch"
        yield Fault("trainer.accumulate", rule, got=accumulate, fix="Try trainer.accumulate=1.")


def memory_limit(config: Config) -> float:
    """Returns the bytes that training may use without --memory."""
    import torch

    if torch.cuda.is_available() and config["trainer"].get("accelerator", "auto") != "cpu":
        return torch.cuda.get_device_properties(0).total_memory
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    container = CGROUP.read_text().strip() if CGROUP.is_file() else "max"
    return CPU_SHARE * (machine if container == "max" else min(machine, float(container)))


def measure_sizes(
    attempt: Callable[[int], tuple[Measurement, int] | None],
    limits: Limits,
    show: Callable[[Measurement], None] | None = None,
) -> tuple[list[Measurement], Limits]:
    """Measures the batch sizes 1, 2, 4, ... up to the first that does not fit, then by bisection
    the multiples of 1/8 of the last one that fits. Returns the sizes that fit, in their order of
    measurement, and the limits, of which the number of examples may be the smaller one.

    attempt(size): the measurement and the number of examples of the corpus; None if memory ran
    out. A size is not attempted if a line through the memory of the last two exceeds the limit.
    Raises ConfigError if not even one sequence fits.
    """
    found: list[Measurement] = []

    def fits(size: int) -> bool:
        nonlocal limits
        if predicted_memory(found, size) > limits.memory:
            return False
        result = attempt(size)
        if result is None or result[0].peak_memory_bytes > limits.memory:
            return False
        found.append(result[0])
        limits = limits._replace(largest=min(limits.largest, result[1]))
        if show is not None:
            show(result[0])
        return True

    low, high = 0, 1
    while low < high and fits(high):
        low, high = high, min(2 * high, limits.largest)
    if not low:
        raise config_error(
            BATCH_SIZE,
            f"not even one sequence fits into {format_bytes(limits.memory)}, the memory limit",
            fix="Lower data.seq_len or model.dim, or set --memory to a higher limit.",
        )
    unit = max(1, low // 8)
    while (middle := low + (high - low) // (2 * unit) * unit) > low:
        if fits(middle):
            low = middle
        else:
            high = middle
    return found, limits


def predicted_memory(found: list[Measurement], size: int) -> float:
    """Returns the peak memory of a batch size on the line through the last two measurements; 0 if
    there are fewer.
    """
    if len(found) < 2:
        return 0.0
    before, last = sorted(found)[-2:]
    slope = (last.peak_memory_bytes - before.peak_memory_bytes) / (
        last.batch_size - before.batch_size
    )
    return last.peak_memory_bytes + slope * (size - last.batch_size)


def measure(config: Config, size: int, steps: int) -> tuple[Measurement, int] | None:
    """Trains for WARM_UP + steps optimizer steps of `size` sequences. Returns the measurement and
    the number of examples of the corpus; None if the GPU runs out of memory.
    """
    import torch
    from lightning.pytorch import Callback

    from tasks.logging.summary import peak_memory
    from tasks.run.short_fit import fit

    marks: list[tuple[float, float]] = []  # (seconds, tokens) after each step
    examples = 0

    class Clock(Callback):
        def on_train_batch_end(self, trainer: Any, task: Any, *_: Any) -> None:
            nonlocal examples
            examples = trainer.datamodule.data.batches.n
            if task.device.type == "cuda":
                torch.cuda.synchronize(task.device)
            marks.append((time.perf_counter(), task.total_tokens()))

    sized = {**config, "data": {**config["data"], "batch_size": size}}
    sized["trainer"] = {**config["trainer"], "accumulate": 1}
    reset_peak_memory()
    try:
        device = fit(sized, WARM_UP + steps, Clock()).device
    except torch.OutOfMemoryError:
        return None
    finally:
        gc.collect()
        torch.compiler.reset()
        torch.cuda.empty_cache()
    timed = [(end - start, tokens - before) for (start, before), (end, tokens) in pairwise(marks)][
        -steps:
    ]
    speed = median(tokens / seconds for seconds, tokens in timed)
    seconds_per_step = median(seconds for seconds, _ in timed)
    return Measurement(size, speed, seconds_per_step, peak_memory(device)), examples


def reset_peak_memory() -> None:
    """Makes `peak_memory` leave out what was used before, by a larger size for instance: on a GPU,
    and on Linux.
    """
    import ctypes

    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(AttributeError, OSError):  # not Linux, or another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)  # returns freed memory of the heap
    with suppress(OSError):
        CLEAR_PEAK.write_text("5")


def proposal(found: list[Measurement]) -> Measurement:
    """Returns the smallest size whose speed is at least 0.95 of the highest."""
    highest = max(size.tokens_per_second for size in found)
    return min(size for size in found if size.tokens_per_second >= NEAR * highest)


def _print_row(size: Measurement) -> None:
    """Prints a measurement as soon as there is one."""
    print(
        f"batch size {size.batch_size:5}  {format_count(size.tokens_per_second):>7} tokens/s"
        f"  {size.seconds_per_step:8.4f} s/step  {format_bytes(size.peak_memory_bytes):>9}",
        flush=True,
    )


def _print_end(found: list[Measurement], limits: Limits, command: str) -> None:
    largest, fastest = max(found), max(found, key=lambda size: size.tokens_per_second)
    limit = format_bytes(limits.memory)
    print(f"Largest up to {limits.largest} that fits into {limit}: {largest.batch_size}.")
    print(f"Fastest: {fastest.batch_size}. Smallest within 5 % of its speed:")
    print(f"  {command}")
