"""Speed of a mixture of experts compared with that of transformers: CPU, fp32, forward and
backward.

    python -m benchmarks.experts [--shapes A B C] [--rounds 15] [--threads 2] [--save]

Mixtral's block with the same sizes and weights, by default (`grouped_mm`) and as a loop over
experts (`eager`), interleaved with ours, without and with the load-balancing loss, which
transformers computes outside the block. Ratios are medians over rounds; above 1, ours is faster.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from benchmarks.measure import CLOCKS, machine, ratio, rounds, save
from xformer_kit.ffn import FFNS


class Shape(NamedTuple):
    tokens: int
    dim: int
    width: int
    experts: int
    top_k: int


SHAPES = {
    "A": Shape(tokens=1024, dim=256, width=512, experts=8, top_k=2),  # Mixtral's proportions
    "B": Shape(
        tokens=2048, dim=256, width=128, experts=64, top_k=6
    ),  # many small ones, as DeepSeekMoE has
    "C": Shape(
        tokens=128, dim=128, width=256, experts=4, top_k=1
    ),  # where calls count as much as products
}
WAYS = ("grouped_mm", "eager")


def ours(shape: Shape, balance: float) -> nn.Module:
    router = {"name": "softmax", "balance": balance}
    node = {
        "name": "moe",
        "experts": shape.experts,
        "top_k": shape.top_k,
        "width": shape.width,
        "router": router,
    }
    return FFNS.create(node, dim=shape.dim)


def theirs(shape: Shape, way: str) -> nn.Module:
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    sizes = {"hidden_size": shape.dim, "intermediate_size": shape.width}
    config = MixtralConfig(
        **sizes, num_local_experts=shape.experts, num_experts_per_tok=shape.top_k
    )
    config._experts_implementation = way
    return MixtralSparseMoeBlock(config)


@torch.no_grad()
def give(block: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Copies the same weights into either kind of block."""
    if hasattr(block, "router"):
        block.router.weight.copy_(weights["router"])
        for name in ("gate", "up", "down"):
            getattr(block.experts, name).weight.copy_(weights[name])
        return
    block.gate.weight.copy_(weights["router"])
    block.experts.gate_up_proj.copy_(torch.cat([weights["gate"], weights["up"]], 1))
    block.experts.down_proj.copy_(weights["down"])


def outcome(block: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | float]:
    """Returns the output of a block and its auxiliary loss."""
    out = block(x)
    return (out[0], out[1].get("loss", 0.0)) if isinstance(out, tuple) else (out, 0.0)


def contestants(shape: Shape) -> dict[str, Callable[[], None]]:
    """Returns functions that run forward and backward of each block on the same input, after
    comparing their outputs once.
    """
    draw = torch.Generator().manual_seed(0)
    tokens, dim, width, experts, _ = shape
    shapes = {
        "router": (experts, dim),
        "gate": (experts, width, dim),
        "up": (experts, width, dim),
        "down": (experts, dim, width),
    }
    weights = {name: torch.randn(s, generator=draw) * s[-1] ** -0.5 for name, s in shapes.items()}
    x, gradient = (torch.randn(1, tokens, dim, generator=draw) for _ in range(2))
    blocks = {"ours": ours(shape, 0.0), "ours with a loss": ours(shape, 0.01)} | {
        way: theirs(shape, way) for way in WAYS
    }
    found, outputs = {}, []
    for name, block in blocks.items():
        give(block.train(), weights)

        def step(block: nn.Module = block) -> None:
            block.zero_grad(set_to_none=True)
            out, loss = outcome(block, x.requires_grad_())
            ((out * gradient).sum() + loss).backward()

        found[name] = step
        outputs.append(outcome(block, x)[0])
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0], rtol=1e-3, atol=1e-4)
    return found


def measure(shape: Shape, count: int, clock: str) -> dict:
    taken = rounds(contestants(shape), count, warm=3, clock=clock)
    ms = {name: 1e3 * statistics.median(times) for name, times in taken.items()}
    own = [name for name in taken if name not in WAYS]
    return {
        "shape": shape._asdict(),
        "ms": ms,
        "ratios": {o: {w: ratio(taken[w], taken[o]) for w in WAYS} for o in own},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: steady while other processes run"
    )
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/experts.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figures = {}
    for name in options.shapes:
        found = figures[name] = measure(SHAPES[name], options.rounds, options.clock)
        print(found["shape"])
        for contestant, ms in found["ms"].items():
            against = found["ratios"].get(contestant, {})
            said = "".join(
                f"  {value:.2f} of transformers' {way}" for way, value in against.items()
            )
            print(f"  {contestant:18s} {ms:8.2f} ms{said}", flush=True)
    if options.save:
        about = machine(options.threads) | {"clock": options.clock}
        print(f"written to {save('experts', about, figures)}")


if __name__ == "__main__":
    main()
