"""Cross-entropy from hidden states: peak memory and time of ours compared with plain logits,
forward and backward.

    python -m benchmarks.cross_entropy [--threads 2] [--pairs 7] [--save]

Time: interleaved pairs in one process, in alternating order; the ratio is the median over pairs, so
that a slow minute of the machine affects both. Memory: a fresh process for each, the rise of the
peak resident set (VmHWM, reset through /proc/self/clear_refs, so Linux only) over the resident set
after creating the inputs and running a small example. It includes logits, gradients, and the
buffers of the matrix library.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.measure import machine, save
from xformer_kit.model.loss import cross_entropy

SHAPES = ((2048, 256, 50_000), (2048, 256, 8_192), (4096, 384, 65))  # tokens, dim, vocab


def plain(hidden, weight, target):
    return F.cross_entropy(F.linear(hidden, weight), target, reduction="sum")


WAYS = {"ours": cross_entropy, "plain": plain}


def inputs(tokens, dim, vocab):
    torch.manual_seed(0)
    hidden, weight = torch.randn(tokens, dim), 0.05 * torch.randn(vocab, dim)
    return hidden.requires_grad_(), weight.requires_grad_(), torch.randint(vocab, (tokens,))


def seconds(way, hidden, weight, target):
    hidden.grad = weight.grad = None
    start = time.perf_counter()
    WAYS[way](hidden, weight, target).backward()
    return time.perf_counter() - start


def times(shape, pairs):
    """Returns medians in seconds, and the median and range of ours / plain over interleaved pairs,
    after one warm-up.
    """
    data = inputs(*shape)
    for way in WAYS:
        seconds(way, *data)
    taken = {way: [] for way in WAYS}
    for i in range(pairs):
        for way in WAYS if i % 2 else reversed(WAYS):
            taken[way].append(seconds(way, *data))
    ratios = sorted(a / b for a, b in zip(taken["ours"], taken["plain"], strict=True))
    medians = {f"{way}_seconds": statistics.median(values) for way, values in taken.items()}
    return medians | {
        "time_ratio": statistics.median(ratios),
        "time_ratio_range": [ratios[0], ratios[-1]],
    }


def resident(field):
    return int(re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def peak(way, shape):
    """Returns the MiB by which one forward and backward raise the peak resident set of this
    process.
    """
    seconds(way, *inputs(32, shape[1], 64))
    data = inputs(*shape)
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to what is resident now
    before = resident("VmRSS")
    seconds(way, *data)
    return resident("VmHWM") - before


def peak_in_a_fresh_process(way, shape, threads):
    command = [
        sys.executable,
        "-m",
        "benchmarks.cross_entropy",
        "--threads",
        str(threads),
        "--peak",
        way,
        *map(str, shape),
    ]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(shape, threads, pairs):
    tokens, dim, vocab = shape
    # A small step takes milliseconds: more pairs there cost nothing and steady the median.
    row = {"tokens": tokens, "dim": dim, "vocab": vocab} | times(
        shape, pairs if vocab > 10_000 else 5 * pairs
    )
    for way in WAYS:
        row[f"{way}_mib"] = peak_in_a_fresh_process(way, shape, threads)
    return row | {"memory_ratio": row["ours_mib"] / row["plain_mib"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--pairs", type=int, default=7, help="interleaved pairs at the largest vocabulary"
    )
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/cross_entropy.json"
    )
    parser.add_argument(
        "--peak", nargs=4, metavar=("WAY", "TOKENS", "DIM", "VOCAB"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print(peak(options.peak[0], tuple(map(int, options.peak[1:]))))
        return
    print(
        "tokens   dim   vocab | plain ms   ours ms  ratio     range     | plain MiB  ours MiB "
        " ratio"
    )
    rows = []
    for shape in SHAPES:
        row = measure(shape, options.threads, options.pairs)
        low, high = row["time_ratio_range"]
        print(
            f"{row['tokens']:6d} {row['dim']:5d} {row['vocab']:7d} |"
            f" {1e3 * row['plain_seconds']:8.1f} {1e3 * row['ours_seconds']:9.1f}"
            f" {row['time_ratio']:6.2f}  {low:.2f} to {high:.2f} | {row['plain_mib']:9.1f}"
            f" {row['ours_mib']:9.1f} {row['memory_ratio']:6.3f}",
            flush=True,
        )
        rows.append(row)
    if options.save:
        about = machine(options.threads) | {"pairs": options.pairs}
        print(f"written to {save('cross_entropy', about, rows)}")


if __name__ == "__main__":
    main()
