"""Where the time of a training step of GPT-2's size goes on one GPU: four ways of the loss, eager
and compiled.

    python -m benchmarks.gpu_step [--rounds 9] [--minutes 8] [--peak TFLOPS] [--tiny] [--save]

A step is forward, loss, backward and a fused AdamW step, under autocast to bf16, on one fixed
batch of 16 x 1,024 tokens with 50,304 tokens in the vocabulary. Contestants: the hand-written GPT,
compiled as a whole with its loss, as nanoGPT compiles it; our model with all logits at once, with
the loss in chunks, and with liger-kernel's fused linear cross-entropy if it is installed, whose
blocks and loss are compiled as in a run (`compile_blocks`). Contestants take turns; ratios are
medians over rounds. Memory is the largest that a step allocates in addition to weights and the
optimizer's state.

MFU, model FLOPs utilization, is that of Chowdhery et al. (2022, arXiv:2204.02311, appendix B):
6 N + 12 L dim T FLOPs per token, N the parameters without the table of positions, T the length of a
sequence; attention is counted without its causal mask, and nothing that is computed twice. It is
divided by the GPU's dense bf16 rate without sparsity, of PEAKS or `--peak`.

Kernels are counted by torch's profiler in one step; launches per layer are the difference between
models of four and of two layers, divided by two. Parts that would begin after `--minutes` are
skipped, and listed. `--tiny` runs everything on any machine in a small size, on the CPU if there is
no GPU, where operations are counted in place of kernels.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks import peers
from benchmarks.measure import machine, ratio, rounds, save
from benchmarks.peers import Peer, Shape
from benchmarks.training_speed import optimizer
from xformer_kit.model import loss
from xformer_kit.model.compiling import compile_blocks

GPT2 = Shape(layers=12, dim=768, heads=12, length=1024, vocab=50304, batch=16)
TINY = Shape(layers=2, dim=32, heads=2, length=16, vocab=96, batch=2)
PEAKS = {  # dense bf16 TFLOP/s without sparsity, of NVIDIA's data sheets, by words of the name
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.4,
    "H200": 989.4,
    "B200": 2250.0,
    "A100": 312.0,
    "L40S": 362.0,
    "A10G": 70.0,
    "L4": 121.0,
    "4090": 165.2,
}
HAND, PLAIN, CHUNKS, LIGER = "hand-written", "ours, all logits", "ours, chunks", "ours, liger"
OPERATIONS = 10  # of a table, the most expensive ones
FEW, MORE = 2, 4  # layers of the models whose launches are compared
GIB = 2**30
Step = Callable[[], None]


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def wait() -> None:
    if device() == "cuda":
        torch.cuda.synchronize()


def ways(shape: Shape) -> dict[str, Callable[[int, int, loss.Device], int | None]]:
    """Returns the rules by which our loss is computed in the two ways, on every device."""
    chunk = max(loss.MIN_TOKENS_GPU, loss.CHUNK_GPU // shape.vocab)
    return {
        PLAIN: lambda tokens, vocab, device: None,
        CHUNKS: lambda tokens, vocab, device: min(chunk, max(1, tokens // 2)),
    }


def contestant(name: str, shape: Shape) -> Peer:
    """Returns a contestant. Raises ImportError if its library is missing."""
    if name == HAND:
        return peers.by_hand(shape)
    ours = peers.ours_gpt(shape)
    if name != LIGER:
        return ours
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    from xformer_kit.tensors.tokens import Tokens

    fused, model = LigerFusedLinearCrossEntropyLoss(), ours.model

    def liger_loss(ids: Tensor, target: Tensor) -> Tensor:
        hidden, _ = model.hidden(Tokens(ids=ids))
        return fused(model.head.weight, hidden.flatten(0, 1), target.flatten())

    return ours._replace(loss=liger_loss)


def stepper(name: str, shape: Shape, compiled: bool) -> tuple[Step, torch.nn.Module]:
    """Returns a function that runs one training step on a fixed batch, and the model."""
    peer = contestant(name, shape)
    model, forward = peer.model.to(device()).train(), peer.loss
    text = torch.randint(shape.vocab, (shape.batch, shape.length + 1), device=device())
    ids, target = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    rule = optimizer(name if name == HAND else next(iter(peers.OURS)), model)
    if compiled and name == HAND:
        forward = torch.compile(forward)
    elif compiled:
        compile_blocks(model)
    way = ways(shape).get(name, loss.chunk_tokens)

    def step() -> None:
        rule.zero_grad(set_to_none=True)
        with torch.autocast(device(), torch.bfloat16), mock.patch.object(loss, "chunk_tokens", way):
            nats = forward(ids, target)
        nats.backward()
        rule.step()

    return step, model


def steps_and_wait(step: Step, count: int) -> None:
    for _ in range(count):
        step()
    wait()


def step_memory(step: Step, model: torch.nn.Module) -> float | None:
    """Returns the GiB that a step allocates at most, without gradients of an earlier one."""
    if device() != "cuda":
        return None
    for parameter in model.parameters():
        parameter.grad = None
    wait()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    wait()
    return (torch.cuda.max_memory_allocated() - before) / GIB


def flops_per_step(shape: Shape, model: torch.nn.Module) -> float:
    """Returns 6 N + 12 L dim T per token, times the tokens."""
    parameters = sum(p.numel() for p in model.parameters()) - shape.length * shape.dim
    each = 6 * parameters + 12 * shape.layers * shape.dim * shape.length
    return float(each * shape.tokens)


def operations(step: Step) -> list[dict[str, Any]]:
    """Returns the kernels of one step, the most expensive first: name, calls, milliseconds. On a
    CPU the operations.
    """
    on_gpu = device() == "cuda"
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu]
    with profile(activities=activities) as profiler:
        steps_and_wait(step, 1)
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU
    found = [
        {
            "name": event.key,
            "calls": event.count,
            "ms": (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e3,
        }
        for event in profiler.key_averages()
        if event.device_type == kind and not event.is_user_annotation
    ]
    return sorted(found, key=lambda row: -row["ms"])


def launches(name: str, shape: Shape, compiled: bool) -> dict[str, float]:
    """Returns the launches of kernels per layer and of all else in a step."""
    counts = []
    for layers in (FEW, MORE):
        step, _ = stepper(name, shape._replace(layers=layers), compiled)
        steps_and_wait(step, 2)
        counts.append(sum(row["calls"] for row in operations(step)))
    per_layer = (counts[1] - counts[0]) / (MORE - FEW)
    return {"per_layer": per_layer, "other": counts[0] - FEW * per_layer}


class Measurement:
    """The figures of all contestants in one mode, `eager` or `compiled`, until a deadline."""

    def __init__(self, shape: Shape, compiled: bool, deadline: float, peak: float | None):
        self.shape = shape
        self.compiled = compiled
        self.deadline = deadline  # of time.perf_counter
        self.peak = peak  # TFLOP/s
        self.rows: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        self.steps: dict[str, Step] = {}

    def prepare(self) -> None:
        """Builds the contestants and runs a first step of each."""
        for name in (HAND, PLAIN, CHUNKS, LIGER):
            if self._is_late(name):
                continue
            try:
                start = time.perf_counter()
                step, model = stepper(name, self.shape, self.compiled)
                steps_and_wait(step, 1)
                first = time.perf_counter() - start
                self.rows[name] = {
                    "first_step_seconds": first,
                    "gib_of_a_step": step_memory(step, model),
                    "flops": flops_per_step(self.shape, model),
                }
                self.steps[name] = step
            except (ImportError, RuntimeError) as error:  # also of memory and of compilation
                self.skipped[name] = str(error).strip().partition("\n")[0]

    def time(self, count: int, steps: int) -> None:
        """Adds the milliseconds of a step, and what follows from them."""
        runs = {name: partial(steps_and_wait, step, steps) for name, step in self.steps.items()}
        taken = rounds(runs, count)
        for name, row in self.rows.items():
            seconds = statistics.median(taken[name]) / steps
            row["ms"] = 1e3 * seconds
            row["tokens_per_second"] = self.shape.tokens / seconds
            row["tflops"] = row["flops"] / seconds / 1e12
            row["mfu"] = self.peak and row["tflops"] / self.peak
            if HAND in taken:
                row["speed_against_hand_written"] = ratio(taken[HAND], taken[name])

    def profile(self) -> None:
        """Adds the most expensive kernels of each contestant, and the sum of all."""
        for name, row in self.rows.items():
            if not self._is_late(f"operations of {name}"):
                found = operations(self.steps[name])
                row["launches"] = sum(one["calls"] for one in found)
                row["ms_of_kernels"] = sum(one["ms"] for one in found)
                row["operations"] = found[:OPERATIONS]

    def count_launches(self) -> None:
        self.steps.clear()  # frees the memory of the models
        for name in (HAND, PLAIN, CHUNKS):
            if name in self.rows and not self._is_late(f"launches per layer of {name}"):
                self.rows[name]["launches_per_layer"] = launches(name, self.shape, self.compiled)

    def _is_late(self, part: str) -> bool:
        late = time.perf_counter() > self.deadline
        if late:
            self.skipped[part] = "the time of --minutes was over"
        return late


def show(mode: str, rows: dict[str, dict[str, Any]], skipped: dict[str, str]) -> None:
    columns = ("ms", "of hand", "TFLOP/s", "MFU", "GiB/step", "launches", "per layer", "other")
    print(f"\n{mode:18s}" + "".join(f"{column:>10s}" for column in columns))
    for name, row in rows.items():
        layer = row.get("launches_per_layer", {})
        numbers = (
            _number(row.get("ms"), 2),
            _number(row.get("speed_against_hand_written"), 3),
            _number(row.get("tflops"), 1),
            _number(row.get("mfu"), 3),
            _number(row.get("gib_of_a_step"), 2),
            _number(row.get("launches"), 0),
            _number(layer.get("per_layer"), 1),
            _number(layer.get("other"), 0),
        )
        print(f"{name:18s}" + "".join(f"{number:>10s}" for number in numbers))
    for part, reason in skipped.items():
        print(f"  {part}: skipped, {reason}")
    for name, row in rows.items():
        if "operations" in row:
            print(f"\n{mode}, {name}: {row['ms_of_kernels']:.2f} ms in {row['launches']} launches")
            for one in row["operations"]:
                print(f"  {one['ms']:8.3f} ms {one['calls']:5d} x  {one['name'][:80]}")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def peak_rate(given: float | None) -> float | None:
    """Returns `--peak`, or the rate of this GPU in PEAKS; None if it is not there."""
    if given is not None or device() != "cuda":
        return given
    name = torch.cuda.get_device_name()
    return next((rate for words, rate in PEAKS.items() if words in name), None)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4, help="of a contestant in a round")
    parser.add_argument("--minutes", type=float, default=8.0, help="after them parts are skipped")
    parser.add_argument("--peak", type=float, help="TFLOP/s of the GPU in bf16, for MFU")
    parser.add_argument("--tiny", action="store_true", help="a small size, also without a GPU")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/gpu_step.json"
    )
    return parser.parse_args()


def main() -> int:
    options, start = arguments(), time.perf_counter()
    if device() == "cpu" and not options.tiny:
        print("gpu_step: skipped, torch finds no CUDA device; --tiny runs it on the CPU")
        return 0
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    shape, peak = TINY if options.tiny else GPT2, peak_rate(options.peak)
    print(f"{shape}, MFU of {peak or 'unknown'} TFLOP/s")
    modes, deadline = {}, start + 60 * options.minutes
    for mode in ("compiled", "eager"):  # the deadline leaves out what matters less
        found = modes[mode] = Measurement(shape, mode == "compiled", deadline, peak)
        found.prepare()
        found.time(options.rounds, options.steps)
        found.profile()
        found.steps.clear()
    for found in modes.values():
        found.count_launches()
    for mode, found in modes.items():
        show(mode, found.rows, found.skipped)
    print(f"\n{time.perf_counter() - start:.0f} s")
    if options.save:
        about = machine() | {"gpu": torch.cuda.get_device_name() if device() == "cuda" else None}
        figures = {mode: {"rows": m.rows, "skipped": m.skipped} for mode, m in modes.items()}
        about |= {"shape": shape._asdict(), "peak_tflops": peak}
        print(f"written to {save('gpu_step' + '_tiny' * options.tiny, about, figures)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
