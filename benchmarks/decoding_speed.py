"""Speed of greedy decoding with a cache compared with other libraries, on CPU.

    python -m benchmarks.decoding_speed [--batches 1 8] [--tokens 256] [--rounds 5] [--threads 2]
    [--save]

6 layers x 384, 6 heads, vocab 65, from a prompt of 8 tokens. In a round each contestant generates
one text; ratios are medians over rounds. Next to the time of each contestant stand the calls of
Python and C functions that a token takes, which do not depend on the machine's load, and the share
of the memory bandwidth: bytes of weights and of cached keys and values that a token reads, by its
time, over the bytes per second that a copy of a large tensor reads and writes.
"""

import argparse
import statistics
import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import CLOCKS, machine, ratio, rounds, save, seconds
from benchmarks.peers import OURS, PEERS, Peer, Shape

PROMPT = 8  # tokens
COMPILED = ", compiled"  # ours with compiled=True; compilation is not timed
# family -> the contestants that ours of this family are compared with
AGAINST = {
    "gpt": ("hand-written GPT", "transformers GPT-2"),
    "llama": ("hand-written Llama", "transformers Llama"),
}
COPIED = 64 * 2**20  # numbers of the tensor whose copy measures the bandwidth


def contestants(shape: Shape, only: list[str]) -> tuple[dict[str, Peer], dict[str, str]]:
    """Returns the contestants that can be built and can generate, and why others are skipped."""
    found, skipped = {}, {}
    for name, make in (OURS | PEERS).items():
        if only and not any(word in name for word in only):
            continue
        try:
            peer = make(shape)
        except ImportError as error:
            skipped[name] = f"cannot be imported: {error}"
            continue
        if peer.generate is None:
            skipped[name] = "has no generation for a model in memory"
            continue
        found[name] = peer
        peer.model.eval()
        if name in OURS:
            found[name + COMPILED] = peer._replace(generate=partial(compiled, peer))
    return found, skipped


def compiled(peer: Peer, ids: Tensor, count: int) -> Tensor:
    """As `generate` of one of ours, with compiled steps."""
    model: Any = peer.model
    return model.generate(ids, max_new_tokens=count, temperature=0.0, compiled=True)


def is_ours(name: str) -> bool:
    return name.removesuffix(COMPILED) in OURS


def calls_of_a_token(peer: Peer, ids: Tensor) -> float:
    """Returns the calls of Python and C functions for each token of a long generation."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    found = []
    peer.generate(ids, 40)  # which compiles
    for tokens in (40, 72):  # the difference leaves out what a generation takes once
        calls = 0
        sys.setprofile(count)
        try:
            peer.generate(ids, tokens)
        finally:
            sys.setprofile(None)
        found.append(calls)
    return (found[1] - found[0]) / 32


def bytes_of_a_token(peer: Peer, shape: Shape, batch: int) -> float:
    """Returns the bytes of weights, and of keys and values in the mean over the text, that a step
    of generation reads; position tables, of which it reads one row, are counted with the weights.
    """
    weights = sum(parameter.nbytes for parameter in peer.model.parameters())
    return weights + 4 * 2 * shape.layers * shape.dim * batch * (PROMPT + shape.length) / 2


def copy_bandwidth() -> float:
    """Returns the bytes per second that the copy of a large tensor reads and writes, at best."""
    source = torch.ones(COPIED)
    target = torch.empty_like(source)
    return 2 * source.nbytes / min(seconds(lambda: target.copy_(source)) for _ in range(5))


def measure(batch: int, tokens: int, count: int, only: list[str], clock: str) -> dict:
    shape = Shape(layers=6, dim=384, heads=6, length=PROMPT + tokens, vocab=65)
    peers, skipped = contestants(shape, only)
    ids = torch.randint(shape.vocab, (batch, PROMPT), generator=torch.Generator().manual_seed(0))

    def speaker(peer: Peer):
        def speak() -> None:
            out = peer.generate(ids, tokens)
            if out.shape != (batch, PROMPT + tokens):
                raise RuntimeError(
                    f"asked for {tokens} tokens of {batch} texts; got the shape {tuple(out.shape)}"
                )

        return speak

    with torch.no_grad():
        calls = {name: calls_of_a_token(peer, ids) for name, peer in peers.items()}
        taken = rounds({name: speaker(peer) for name, peer in peers.items()}, count, clock=clock)
    bandwidth = copy_bandwidth()
    read = {name: bytes_of_a_token(peer, shape, batch) for name, peer in peers.items()}
    rows = {
        name: {
            "family": peers[name].family,
            "tokens_per_second": batch * tokens / statistics.median(times),
            "fastest": batch * tokens / min(times),
            "calls_per_token": calls[name],
            "share_of_bandwidth": read[name] * tokens / statistics.median(times) / bandwidth,
        }
        for name, times in taken.items()
    }
    ratios = {
        name: {other: ratio(taken[other], taken[name]) for other in rows if not is_ours(other)}
        for name in rows
        if is_ours(name)
    }
    return {"batch": batch, "tokens": tokens, "rows": rows, "ratios": ratios, "skipped": skipped}


def show(figures: dict) -> None:
    print(f"batch {figures['batch']}, {figures['tokens']} tokens")
    for name, row in sorted(
        figures["rows"].items(), key=lambda item: -item[1]["tokens_per_second"]
    ):
        print(
            f"  {name:30s} {row['tokens_per_second']:8.1f} tokens/s, at best {row['fastest']:8.1f};"
            f" {row['calls_per_token']:6.0f} calls per token; {row['share_of_bandwidth']:4.0%} of"
            " the bandwidth"
        )
    for name, against in figures["ratios"].items():
        for other in AGAINST[figures["rows"][name]["family"]]:
            if other in against:
                print(f"  {name}: {against[other]:.2f} of {other}")
    for name, reason in figures["skipped"].items():
        print(f"  {name}: skipped, {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], help="texts at once")
    parser.add_argument("--tokens", type=int, default=256, help="new tokens of each text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: steady while other processes run"
    )
    parser.add_argument("--only", nargs="+", default=[], help="words of the contestants' names")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/decoding_speed.json"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    found = []
    for batch in options.batches:
        found.append(measure(batch, options.tokens, options.rounds, options.only, options.clock))
        show(found[-1])
    if options.save:
        about = machine(options.threads) | {"clock": options.clock}
        print(f"written to {save('decoding_speed', about, found)}")


if __name__ == "__main__":
    main()
