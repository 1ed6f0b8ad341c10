"""Speed and memory of a training step compared with other libraries, on one GPU, in bf16.

    python -m benchmarks.gpu_training_speed [--shapes L S] [--compile] [--only WORD ...] [--save]

A step is forward, loss, backward and a fused AdamW step, under autocast to bf16. With `--compile`
our blocks are compiled, as in a run (`trainer.compile`), and the others as a whole. A round is
STEPS steps of each contestant, then a wait for the GPU; ratios are medians over rounds. Memory is
the largest that a step allocates in addition to weights and the optimizer's state.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.measure import machine, rounds, save
from benchmarks.peers import OURS, Peer, Shape
from benchmarks.training_speed import contestants, optimizer, ratios, show_ratios
from xformer_kit.model.compiling import compile_blocks

SHAPES = {  # the size of GPT-2 with a large and a small vocabulary
    "L": Shape(layers=12, dim=768, heads=12, length=1024, vocab=50304, batch=16),
    "S": Shape(layers=12, dim=768, heads=12, length=1024, vocab=256, batch=16),
}
STEPS = 4  # of a contestant in a round
GIB = 2**30


def stepper(name: str, peer: Peer, shape: Shape, compiled: bool) -> Callable[[], None]:
    """Returns a function that runs one training step on a fixed batch."""
    model = peer.model.to("cuda").train()
    text = torch.randint(shape.vocab, (shape.batch, shape.length + 1), device="cuda")
    ids, target = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    rule = optimizer(name, model)
    if compiled:
        compile_blocks(model) if name in OURS else model.compile()

    def step() -> None:
        rule.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = peer.loss(ids, target)
        loss.backward()
        rule.step()

    return step


def steps_and_wait(step: Callable[[], None]) -> None:
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()


def step_memory(step: Callable[[], None]) -> int:
    """Returns the bytes that a step allocates at most, without gradients of an earlier one."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def measure(shape: Shape, count: int, only: list[str], compiled: bool) -> dict:
    peers, skipped = contestants(shape, only)
    steps, memory = {}, {}
    for name, peer in peers.items():
        try:
            step = stepper(name, peer, shape, compiled)
            step()  # makes the optimizer's state
            for parameter in peer.model.parameters():
                parameter.grad = None
            memory[name], steps[name] = step_memory(step), step
        except RuntimeError as error:  # torch's errors of memory and of compilation
            skipped[name] = str(error).strip().partition("\n")[0]
    taken = rounds({name: partial(steps_and_wait, step) for name, step in steps.items()}, count)
    rows = {
        name: {
            "family": peers[name].family,
            "ms": 1e3 / STEPS * statistics.median(taken[name]),
            "tokens_per_second": STEPS * shape.tokens / statistics.median(taken[name]),
            "parameters": sum(p.numel() for p in peers[name].model.parameters()),
            "gib_of_a_step": memory[name] / GIB,
        }
        for name in steps
    }
    return {
        "shape": shape._asdict(),
        "rows": rows,
        "skipped": skipped,
        "ratios": ratios(rows, taken),
    }


def show(figures: dict) -> None:
    print(f"{figures['shape']}")
    print(f"  {'':30s} {'ms/step':>9s} {'tokens/s':>10s} {'GiB/step':>9s}")
    for name, row in sorted(figures["rows"].items(), key=lambda item: item[1]["ms"]):
        numbers = f"{row['ms']:9.2f} {row['tokens_per_second']:10,.0f}"
        print(f"  {name:30s} {numbers} {row['gib_of_a_step']:9.2f}")
    show_ratios(figures)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--compile", action="store_true", help="compile every contestant")
    parser.add_argument("--only", nargs="+", default=[], help="words of the contestants' names")
    parser.add_argument("--save", action="store_true", help="write a file in benchmarks/results")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_training_speed: skipped, torch finds no CUDA device")
        return 0
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    found = {}
    for name in options.shapes:
        found[name] = measure(SHAPES[name], options.rounds, options.only, options.compile)
        show(found[name])
        torch.cuda.empty_cache()
    if options.save:
        about = machine() | {"gpu": torch.cuda.get_device_name()}
        name = "gpu_training_speed" + ("_compiled" if options.compile else "")
        print(f"written to {save(name, about, found)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
