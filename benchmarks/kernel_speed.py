"""The kernel `sdpa` compared with a direct call of torch's function, forward and backward: time by
mask, with dropout, and memory.

    python -m benchmarks.kernel_speed [--threads 1] [--rounds 9] [--no-memory] [--save]

Time: rounds in one process, every other round in reverse order; figures are medians of ratios
within a round, of CPU time, so use one thread. `direct` is one call of
torch.nn.functional.scaled_dot_product_attention, with its own causal mask or with a dense one;
masks are computed once for both. Memory: a fresh process for each length, the rise of the peak
resident set over one forward and backward of one layer, including its mask (Linux only).
"""

import argparse
import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.cross_entropy import resident
from benchmarks.measure import machine, ratio, rounds, save
from xformer_kit.kernel import KERNELS
from xformer_kit.mask import MASKS
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens

WINDOW, HEADS, DIM, DROPOUT = 256, 6, 64, 0.1
SHAPES = ((2, 512), (1, 2048))  # rows, tokens
KINDS = {
    "full": {"name": "full"},
    "causal": {"name": "causal"},
    "window": {"name": "sliding_window", "window": WINDOW},
}
LENGTHS = (1024, 2048, 4096, 8192)
MEMORY = ("causal", "window", "window alibi", "causal dropout", "dense window")


def inputs(rows: int, length: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(rows, length, HEADS, DIM).transpose(1, 2).requires_grad_() for _ in "qkv"]


def seen(kind: str, length: int, position: str = "none") -> AttentionContext:
    """Returns the context that a stack prepares for all layers."""
    place = POSITIONS.create(
        {"name": position},
        dim=8,
        heads=HEADS,
        head_dim=DIM,
        max_len=length,
        layers=1,
        stack="decoder",
    )
    tokens = Tokens(slot=torch.arange(length)[None]).with_positions()
    context = AttentionContext(tokens, tokens, MASKS.create(KINDS[kind]), place)
    return context._replace(
        prepared=KERNELS["sdpa"]().prepare(context, HEADS, position != "none", torch.float32)
    )


def ours(given: list[Tensor], context: AttentionContext, dropout: float = 0.0) -> Tensor:
    return KERNELS["sdpa"]()(*given, context, 1 / math.sqrt(DIM), dropout)


def dense(length: int) -> Tensor:
    distance = torch.arange(length)[:, None] - torch.arange(length)
    return (distance >= 0) & (distance < WINDOW)


def direct(kind: str, length: int) -> Callable[..., Tensor]:
    mask = dense(length) if kind == "window" else None
    return partial(scaled_dot_product_attention, attn_mask=mask, is_causal=kind == "causal")


def step(run: Callable[[], Tensor], given: list[Tensor], up: Tensor) -> None:
    for x in given:
        x.grad = None
    run().backward(up)


def times(rows: int, length: int, count: int) -> dict[str, float]:
    given = inputs(rows, length)
    up = torch.randn(rows, length, HEADS, DIM).transpose(1, 2)
    runs: dict[str, Callable[[], Tensor]] = {}
    for kind in KINDS:
        context = seen(kind, length)
        runs[f"{kind} direct"] = partial(direct(kind, length), *given)
        runs[f"{kind}"] = partial(ours, given, context)
        runs[f"{kind} dropout"] = partial(ours, given, context, DROPOUT)
        runs[f"{kind} dropout direct"] = partial(direct(kind, length), *given, dropout_p=DROPOUT)
    taken = rounds(
        {name: partial(step, run, given, up) for name, run in runs.items()}, count, clock="cpu"
    )
    figures = {f"{name} ms": 1e3 * statistics.median(values) for name, values in taken.items()}
    for kind in KINDS:
        figures[f"{kind} / direct"] = ratio(taken[kind], taken[f"{kind} direct"])
        figures[f"{kind} / causal"] = ratio(taken[kind], taken["causal"])
        figures[f"{kind} dropout / none"] = ratio(taken[f"{kind} dropout"], taken[kind])
        figures[f"{kind} dropout direct / none"] = ratio(
            taken[f"{kind} dropout direct"], taken[f"{kind} direct"]
        )
    return figures


def peak(what: str, length: int) -> float:
    """Returns the MiB by which one forward and backward raise the peak resident set of this
    process.
    """

    def run(length: int, given: list[Tensor]) -> None:
        if what == "dense window":
            out = direct("window", length)(*given)
        else:
            kind, _, more = what.partition(" ")
            out = ours(
                given,
                seen(kind, length, "alibi" if more == "alibi" else "none"),
                DROPOUT * (more == "dropout"),
            )
        out.sum().backward()

    run(320, inputs(1, 320))
    given = inputs(1, length)
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to what is resident now
    before = resident("VmRSS")
    run(length, given)
    return resident("VmHWM") - before


def peaks(what: str, threads: int) -> list[float]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.kernel_speed",
        "--threads",
        str(threads),
        "--peak",
        what,
    ]
    return [
        float(subprocess.run([*command, str(n)], check=True, capture_output=True, text=True).stdout)
        for n in LENGTHS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-memory", action="store_true", help="measure only times")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/kernel_speed.json"
    )
    parser.add_argument("--peak", nargs=2, metavar=("WHAT", "TOKENS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print(peak(options.peak[0], int(options.peak[1])))
        return
    figures: dict[str, object] = {
        "heads": HEADS,
        "head_dim": DIM,
        "window": WINDOW,
        "dropout": DROPOUT,
    }
    print(
        "rows x tokens  mask     ms    / direct  / causal  dropout / none   torch's dropout / none"
    )
    for rows, length in SHAPES:
        found = times(rows, length, options.rounds)
        figures[f"{rows} x {length}"] = found
        for kind in KINDS:
            print(
                f"{rows} x {length:<9}  {kind:6} {found[f'{kind} ms']:6.1f}"
                f" {found[f'{kind} / direct']:9.2f} {found[f'{kind} / causal']:9.2f}"
                f" {found[f'{kind} dropout / none']:14.2f}"
                f" {found[f'{kind} dropout direct / none']:21.2f}",
                flush=True,
            )
    if not options.no_memory:
        print(
            f"MiB at the peak, 1 x {HEADS} heads   "
            + "".join(f"{n:9,}" for n in LENGTHS)
            + " tokens"
        )
        figures["mib"] = {}
        for what in MEMORY:
            grown = peaks(what, options.threads)
            figures["mib"][what] = dict(zip(map(str, LENGTHS), grown, strict=True))  # type: ignore[index]
            print(f"{what:28}" + "".join(f"{mib:9.1f}" for mib in grown), flush=True)
    if options.save:
        about = machine(options.threads) | {"rounds": options.rounds}
        print(f"written to {save('kernel_speed', about, figures)}")


if __name__ == "__main__":
    main()
