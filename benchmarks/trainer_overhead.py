"""Time per step that a run adds to a bare training loop, with a tiny model; medians of interleaved
pairs.

    python -m benchmarks.trainer_overhead [--pairs 5] [--steps 500] [--save]

The bare loop has the same model, data order, optimizer, schedule and clipping, and reads no loss.
The run has the progress bar, metrics.csv and W&B offline; it is timed over its steps, without
validation and checkpoints.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from benchmarks.measure import machine, save
from xformer_kit import build, compose
from xformer_kit.data import collate, prepare
from xformer_kit.objective import OBJECTIVES
from xformer_kit.optim import create_optimizer
from xformer_kit.optim.schedules import SCHEDULES

WARM = 20  # steps that are not timed
clock = time.perf_counter


def tiny_config(steps: int, logger: str = "wandb") -> dict:
    return compose(
        [
            "model.dim=64",
            "model.layers=2",
            "attn.heads=4",
            "data.seq_len=32",
            "data.batch_size=8",
            f"trainer.max_steps={steps}",
            "trainer.val_every=null",
            "trainer.checkpoint_every=null",
            "trainer.limit_val_batches=1",
            f"logger={logger}",
        ]
    )


def bare(steps: int) -> float:
    """Seconds per step."""
    from xformer_kit.data.preparation.training_data import TrainingData

    config = tiny_config(steps)
    prepared = prepare(config)
    model = build(config, prepared.tokenizer.vocab_size)
    objective = OBJECTIVES.create(config["task"])
    data = TrainingData(config, prepared, objective)
    optimizer = create_optimizer(config["optim"], model)
    schedule = SCHEDULES.create(config["schedule"], max_steps=steps)
    base = [group["lr"] for group in optimizer.param_groups]
    loader = DataLoader(
        prepared.train, batch_sampler=data.step_sampler(1, 0, 1), collate_fn=collate
    )
    start = 0.0
    for step, batch in enumerate(loader):
        if step == WARM:
            start = clock()
        for group, lr in zip(optimizer.param_groups, base, strict=True):
            group["lr"] = lr * schedule(step)
        nats, count, _ = objective.loss(model, batch)
        (nats / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return (clock() - start) / (steps - WARM)


def run(steps: int, logger: str = "wandb", live: bool = True) -> float:
    """Seconds per step."""
    from lightning.pytorch import Callback

    from tasks.logging.bar import Bar
    from tasks.run import training_process
    from tasks.run.start import start_run

    class Watch(Callback):
        def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
            if batch_idx == WARM - 1:
                self.begun = clock()
            if batch_idx == steps - 2:  # the last step ends in a validation
                self.ended = clock()

    watch, make = Watch(), training_process.trainers.make_trainer
    training_process.trainers.make_trainer = lambda config, callbacks, *rest: make(
        config, [*callbacks, watch], *rest
    )
    training_process.Bar = lambda total, done, _live, *rest: Bar(total, done, live, *rest)
    try:
        with tempfile.TemporaryDirectory() as folder:
            assert start_run(tiny_config(steps, logger), Path(folder) / "run") == 0
    finally:
        training_process.trainers.make_trainer = make
    return (watch.ended - watch.begun) / (steps - 1 - WARM)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--logger", default="wandb")
    parser.add_argument("--no-bar", action="store_true")
    parser.add_argument(
        "--cpu", action="store_true", help="seconds of this process on a CPU, for a busy machine"
    )
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/trainer_overhead.json"
    )
    given = parser.parse_args()
    global clock
    clock = time.process_time if given.cpu else time.perf_counter
    os.environ["WANDB_MODE"] = "offline"
    torch.set_num_threads(1)
    bare(2 * WARM)
    pairs = [
        (bare(given.steps), run(given.steps, given.logger, not given.no_bar))
        for _ in range(given.pairs)
    ]
    found = {
        "bare_ms": 1e3 * statistics.median(a for a, _ in pairs),
        "run_ms": 1e3 * statistics.median(b for _, b in pairs),
        "overhead_ms": 1e3 * statistics.median(b - a for a, b in pairs),
        "overhead_ms_each": [round(1e3 * (b - a), 3) for a, b in pairs],
    }
    print(json.dumps(found, indent=2))
    if given.save:
        about = machine(1) | {
            "pairs": given.pairs,
            "steps": given.steps,
            "clock": "cpu" if given.cpu else "wall",
        }
        print(f"written to {save('trainer_overhead', about, found)}")


if __name__ == "__main__":
    main()
