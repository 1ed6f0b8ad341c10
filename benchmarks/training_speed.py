"""Speed of a training step compared with other libraries, on CPU, eager, in fp32.

    python -m benchmarks.training_speed [--shapes A B] [--rounds 9] [--threads 2] [--save]

A step is forward, loss, backward and a fused AdamW step. A round is one step of each contestant;
ratios are medians over rounds. Utilization is the rate of a step's products with weights (torch's
FlopCounterMode) divided by the rate of one large product, measured in each round.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import CLOCKS, machine, ratio, rounds, save
from benchmarks.peers import OURS, PEERS, Peer, Shape

SHAPES = {
    "A": Shape(layers=6, dim=384, heads=6, length=256, vocab=65, batch=16),
    "B": Shape(layers=4, dim=256, heads=4, length=512, vocab=8192, batch=4),
}
RATE = "matrix products"
PRODUCTS = 8  # products of one measurement of the rate
# Products with weights only: torch counts those of attention in some kernels and not in others;
# addmm_ it leaves out.
WEIGHTED = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_)


def added(out: list[int], a: list[int], b: list[int], **other: object) -> int:
    """Returns the FLOPs of out += a b."""
    return 2 * a[0] * a[1] * b[1]


def optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    if name in OURS:
        from xformer_kit.optim import create_optimizer

        return create_optimizer({"name": "adamw"}, model)
    return torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True
    )


def stepper(name: str, peer: Peer, shape: Shape) -> Callable[[], None]:
    """Returns a function that runs one training step on a fixed batch."""
    draw = torch.Generator().manual_seed(0)
    text = torch.randint(shape.vocab, (shape.batch, shape.length + 1), generator=draw)
    ids, target = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    rule = optimizer(name, peer.model)
    peer.model.train()

    def step() -> None:
        rule.zero_grad(set_to_none=True)
        peer.loss(ids, target).backward()
        rule.step()

    return step


def contestants(shape: Shape, only: list[str]) -> tuple[dict[str, Peer], dict[str, str]]:
    """Returns the contestants that can be built, and why the others are skipped."""
    found, skipped = {}, {}
    for name, make in (OURS | PEERS).items():
        if only and not any(word in name for word in only):
            continue
        try:
            found[name] = make(shape)
        except ImportError as error:
            skipped[name] = f"cannot be imported: {error}"
    return found, skipped


def product(shape: Shape) -> tuple[Callable[[], None], float]:
    """Returns a function with large matrix products of the model's width, and their FLOPs."""
    a, b = torch.randn(shape.tokens, shape.dim), torch.randn(shape.dim, 4 * shape.dim)
    out = torch.empty(shape.tokens, 4 * shape.dim)

    def run() -> None:
        for _ in range(PRODUCTS):
            torch.mm(a, b, out=out)

    return run, PRODUCTS * 2.0 * shape.tokens * shape.dim * 4 * shape.dim


def measure(shape: Shape, count: int, only: list[str], clock: str) -> dict:
    peers, skipped = contestants(shape, only)
    steps = {name: stepper(name, peer, shape) for name, peer in peers.items()}
    flops = {}
    for name, step in steps.items():
        with FlopCounterMode(
            display=False, custom_mapping={torch.ops.aten.addmm_: added}
        ) as counter:
            step()
        counts = counter.get_flop_counts()["Global"]
        flops[name] = sum(count for op, count in counts.items() if op in WEIGHTED)
    run, work = product(shape)
    taken = rounds({RATE: run, **steps}, count, clock=clock)
    rows = {}
    for name in steps:
        rows[name] = {
            "family": peers[name].family,
            "ms": 1e3 * statistics.median(taken[name]),
            "fastest_ms": 1e3 * min(taken[name]),
            "tokens_per_second": shape.tokens / statistics.median(taken[name]),
            "parameters": sum(p.numel() for p in peers[name].model.parameters()),
            "flops": flops[name],
            "share_of_matrix_rate": flops[name] / work * ratio(taken[RATE], taken[name]),
        }
    return {
        "shape": shape._asdict(),
        "rows": rows,
        "skipped": skipped,
        "ratios": ratios(rows, taken),
    }


def ratios(rows: dict, taken: dict[str, list[float]]) -> dict[str, dict]:
    """Returns the ratio of each of our models to the best peer of its family and of all; above 1,
    ours is faster.
    """
    found = {}
    for name in (name for name in rows if name in OURS):
        others = [other for other in rows if other not in OURS]
        family = [other for other in others if rows[other]["family"] == rows[name]["family"]]
        found[name] = {"each": {other: ratio(taken[other], taken[name]) for other in others}}
        for label, group in (("best_of_its_family", family), ("best_of_all", others)):
            if group:
                best = min(group, key=lambda other: rows[other]["ms"])
                found[name][label] = {"peer": best, "ratio": ratio(taken[best], taken[name])}
    return found


def show(figures: dict) -> None:
    print(f"{figures['shape']}")
    print(f"  {'':30s} {'ms/step':>9s} {'fastest':>9s} {'tokens/s':>9s} {'share':>6s}")
    for name, row in sorted(figures["rows"].items(), key=lambda item: item[1]["ms"]):
        numbers = f"{row['ms']:9.1f} {row['fastest_ms']:9.1f} {row['tokens_per_second']:9.0f}"
        print(f"  {name:30s} {numbers} {row['share_of_matrix_rate']:6.2f}")
    show_ratios(figures)


def show_ratios(figures: dict) -> None:
    """Prints the best peer of each of our models, and why others were skipped."""
    for name, against in figures["ratios"].items():
        for label in ("best_of_its_family", "best_of_all"):
            if label in against:
                best = against[label]
                print(
                    f"  {name}: {best['ratio']:.3f} of {best['peer']} ({label.replace('_', ' ')})"
                )
    for name, reason in figures["skipped"].items():
        print(f"  {name}: skipped, {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: steady while other processes run"
    )
    parser.add_argument("--only", nargs="+", default=[], help="words of the contestants' names")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/training_speed.json"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    found = {}
    for name in options.shapes:
        found[name] = measure(SHAPES[name], options.rounds, options.only, options.clock)
        show(found[name])
    if options.save:
        about = machine(options.threads) | {"clock": options.clock}
        print(f"written to {save('training_speed', about, found)}")


if __name__ == "__main__":
    main()
