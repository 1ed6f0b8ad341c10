"""Speed of recurrent attentions computed in chunks compared with token by token: CPU, forward and
backward.

    python -m benchmarks.recurrent_speed [--tokens 2048] [--rounds 5] [--threads 2] [--clock cpu]
    [--save]

Each attention gets one random text: dim 256, 4 heads, batch 1, fp32. `form` is the ratio of the
times of kernel=chunked and kernel=reference, a loop over tokens as in the equations; `layer` is the
ratio for the whole layer with its projections. Ratios are medians over rounds. Memory: bytes that
autograd keeps for the backward pass of the layer, and their growth with twice the tokens.
"""

import argparse
import os
import statistics
from typing import Any

import torch
from torch import nn

from benchmarks.measure import CLOCKS, machine, ratio, rounds, save
from xformer_kit.attention import ATTENTIONS
from xformer_kit.kernel import KERNELS, Kernel
from xformer_kit.kernel.recurrence import Recurrence
from xformer_kit.mask import Causal
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens

DIM, HEADS = 256, 4
KINDS = ("linear", "retention", "gated_delta", "performer")


def layer(name: str, kernel: str) -> nn.Module:
    torch.manual_seed(0)
    options = {"name": name, "heads": HEADS}
    made = ATTENTIONS.create(
        options, dim=DIM, depth=0, layers=1, norm=nn.RMSNorm, kernel=KERNELS.create(kernel)
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(
                torch.randn(parameter.shape)
                * (parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3)
            )
    return made


def step(made: nn.Module, tokens: int):
    x = torch.randn(1, tokens, DIM, generator=torch.Generator().manual_seed(1), requires_grad=True)
    placed = Tokens(ids=torch.zeros(1, tokens, dtype=torch.long)).with_positions()
    position = POSITIONS.create(
        {"name": "none"}, dim=DIM, heads=HEADS, head_dim=DIM // HEADS, max_len=tokens, layers=1
    )
    context = AttentionContext(placed, placed, Causal(), position, cross_layer_state={})

    def run() -> None:
        made.zero_grad()
        made(x, None, context).sum().backward()

    return run


class Caught(Kernel):
    """Records the arguments of a call."""

    asked: tuple[Recurrence, torch.Tensor, int]

    def recur(self, recurrence, state, chunk):
        self.asked = recurrence, state, chunk
        return KERNELS.create("chunked").recur(recurrence, state, chunk)


def form(name: str, kernel: str, tokens: int):
    """Returns a function that runs a layer's recurrence, with gradients as in the layer."""
    made: Any = layer(name, "chunked")
    made.kernel = caught = Caught()
    step(made, tokens)()
    r, state, chunk = caught.asked
    components = [None if x is None else x.detach().requires_grad_(x.requires_grad) for x in r]
    given, able = Recurrence(*components), KERNELS.create(kernel)

    def run() -> None:
        for x in components:
            if x is not None:
                x.grad = None
        able.recur(given, state, chunk)[0].sum().backward()

    return run


def kept(made: nn.Module, tokens: int) -> int:
    """Returns the bytes saved for the backward pass, each storage once."""
    sizes: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        step(made, tokens)()
    return sum(sizes.values())


def measure(name: str, tokens: int, count: int, clock: str) -> dict:
    made = {kernel: layer(name, kernel) for kernel in ("chunked", "reference")}
    whole = rounds(
        {kernel: step(module, tokens) for kernel, module in made.items()}, count, clock=clock
    )
    taken = rounds({kernel: form(name, kernel, tokens) for kernel in made}, count, clock=clock)
    once, twice = (kept(made["chunked"], n) for n in (tokens, 2 * tokens))
    return {
        "attn": name,
        "tokens": tokens,
        "chunked_seconds": statistics.median(taken["chunked"]),
        "steps_seconds": statistics.median(taken["reference"]),
        "times_faster": ratio(taken["reference"], taken["chunked"]),
        "layer_times_faster": ratio(whole["reference"], whole["chunked"]),
        "kept_bytes": once,
        "kept_at_twice_the_tokens": twice / once,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/recurrent_speed.json"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        "attn          tokens | chunked ms   steps ms    form   layer | kept MiB, at twice the"
        " tokens"
    )
    rows = []
    for name in KINDS:
        row = measure(name, options.tokens, options.rounds, options.clock)
        times = f"{1e3 * row['chunked_seconds']:10.1f} {1e3 * row['steps_seconds']:10.1f}"
        faster = f"{row['times_faster']:7.1f} {row['layer_times_faster']:7.1f}"
        kept_ = f"{row['kept_bytes'] / 2**20:8.1f} {row['kept_at_twice_the_tokens']:6.2f} x"
        print(f"{name:12s} {row['tokens']:7d} | {times} {faster} | {kept_}", flush=True)
        rows.append(row)
    if options.save:
        about = machine(options.threads) | {"rounds": options.rounds, "clock": options.clock}
        print(f"written to {save('recurrent_speed', about, rows)}")


if __name__ == "__main__":
    main()
