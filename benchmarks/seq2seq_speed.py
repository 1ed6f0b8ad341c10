"""Speed of training and decoding of an encoder-decoder compared with other libraries, on CPU,
eager, in fp32.

    python -m benchmarks.seq2seq_speed [--what train greedy beam] [--rounds 5] [--threads 2]
    [--save]

3 + 3 layers, dim 256, 4 heads, networks of 1,024, vocab 8,000. A training step is forward, loss,
backward and a fused AdamW step over 64 pairs of 32 tokens; decoding generates 32 tokens from a
source of 32, for batches of 1 and 16, greedily and with 4 beams. A round is one step of each
contestant; ratios are medians over rounds.
"""

import argparse
import statistics
from collections.abc import Callable

import torch

from benchmarks.measure import machine, ratio, rounds, save
from benchmarks.seq2seq_peers import OURS, PEERS, Peer, Shape
from benchmarks.training_speed import optimizer

SHAPE = Shape(layers=3, dim=256, heads=4, width=1024, vocab=8000, length=32, batch=64)
AGAINST = "transformers BART"


def contestants(only: list[str]) -> tuple[dict[str, Peer], dict[str, str]]:
    """Returns the contestants that can be built, and why the others are skipped."""
    found, skipped = {}, {}
    for name, make in (OURS | PEERS).items():
        if only and not any(word in name for word in only):
            continue
        try:
            found[name] = make(SHAPE)
        except ImportError as error:
            skipped[name] = f"cannot be imported: {error}"
    return found, skipped


def stepper(name: str, peer: Peer) -> Callable[[], None]:
    """Returns a function that runs one training step on a fixed batch."""
    draw = torch.Generator().manual_seed(0)
    source = torch.randint(2, SHAPE.vocab, (SHAPE.batch, SHAPE.length), generator=draw)
    target = torch.randint(2, SHAPE.vocab, (SHAPE.batch, SHAPE.length + 1), generator=draw)
    rule = optimizer("ours (GPT-2 like)" if name in OURS else name, peer.model)
    peer.model.train()

    def step() -> None:
        rule.zero_grad(set_to_none=True)
        peer.loss(source, target).backward()
        rule.step()

    return step


def train(peers: dict[str, Peer], count: int) -> dict:
    taken = rounds({name: stepper(name, peer) for name, peer in peers.items()}, count)
    rows = {
        name: {
            "ms": 1e3 * statistics.median(times),
            "tokens_per_second": SHAPE.tokens / statistics.median(times),
        }
        for name, times in taken.items()
    }
    return {"rows": rows, "ratios": against(taken)}


def answer(peers: dict[str, Peer], batch: int, beam: int, count: int) -> dict:
    source = torch.randint(
        2, SHAPE.vocab, (batch, SHAPE.length), generator=torch.Generator().manual_seed(0)
    )

    def speaker(peer: Peer) -> Callable[[], None]:
        peer.model.eval()
        return lambda: peer.generate(source, SHAPE.length, beam)

    with torch.no_grad():
        taken = rounds(
            {name: speaker(peer) for name, peer in peers.items() if peer.generate}, count
        )
    rows = {
        name: {"tokens_per_second": batch * SHAPE.length / statistics.median(t)}
        for name, t in taken.items()
    }
    return {"batch": batch, "beam": beam, "rows": rows, "ratios": against(taken)}


def against(taken: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Returns the ratio of each of our models to every other; above 1, ours is faster."""
    return {
        name: {other: ratio(taken[other], taken[name]) for other in taken if other not in OURS}
        for name in taken
        if name in OURS
    }


def show(title: str, figures: dict) -> None:
    print(title)
    for name, row in sorted(
        figures["rows"].items(), key=lambda item: -item[1]["tokens_per_second"]
    ):
        print(f"  {name:24s} {row['tokens_per_second']:9.1f} tokens/s")
    for name, others in figures["ratios"].items():
        print(
            f"  {name}: " + ", ".join(f"{value:.2f} of {other}" for other, value in others.items())
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--what",
        nargs="+",
        choices=("train", "greedy", "beam"),
        default=["train", "greedy", "beam"],
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[], help="words of the contestants' names")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/seq2seq_speed.json"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    peers, skipped = contestants(options.only)
    found: dict = {"shape": SHAPE._asdict(), "skipped": skipped}
    if "train" in options.what:
        found["train"] = train(peers, options.rounds)
        show("training", found["train"])
    for what, beam in (("greedy", 1), ("beam", 4)):
        if what in options.what:
            found[what] = [answer(peers, batch, beam, options.rounds) for batch in (1, 16)]
            for figures in found[what]:
                show(f"{what}, batch {figures['batch']}", figures)
    for name, reason in skipped.items():
        print(f"  {name}: skipped, {reason}")
    if options.save:
        print(f"written to {save('seq2seq_speed', machine(options.threads), found)}")


if __name__ == "__main__":
    main()
