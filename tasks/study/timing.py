"""Measures the time of an optimizer step of a config on this machine.

Measured times are saved next to the plan, because a budget of seconds must not change when a study
is continued.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tasks.logging import summary
from xformer_kit import build
from xformer_kit.config import config_hash
from xformer_kit.data import collate
from xformer_kit.data.batch import map_tensors, num_rows
from xformer_kit.files.saved_files import read_object
from xformer_kit.inspect.memory import autocast, precision
from xformer_kit.objective import objective_of
from xformer_kit.optim import OPTIMIZERS
from xformer_kit.registry import ConfigError
from xformer_kit.study.nodes import Config

WARMUP_STEPS, MEASURED_STEPS, MAX_STEPS = 2, 5, 500  # steps
# Rounds in which all variants are measured; seconds per variant and round for a budget of seconds.
ROUNDS, MIN_SECONDS = 3, 0.4
VALIDATION_BATCHES = 3
FILE = "seconds_per_step.json"


class Pace(NamedTuple):
    """Seconds of the phases of a run."""

    start: float  # building the model
    step: float  # an optimizer step with its data
    check: float  # a validation


class StepClock:
    """Measures the seconds of an optimizer step: data, forward, backward, clipping and update.

    min_seconds: minimum measuring time per config.
    """

    def __init__(self, folder: Path, min_seconds: float = 0.0):
        self.path = folder / FILE
        self.min_seconds = min_seconds
        self.known = _read(self.path)
        self.paces: dict[str, Pace] = {}

    def __call__(self, config: Config, prepared: Any) -> float:
        """Returns the seconds of a step; measured only if they are not known."""
        key = self._key(config)
        if key not in self.known:
            self.known[key] = self.pace(config, prepared).step
        return self.known[key]

    def measure_all(self, configs: Sequence[tuple[Config, Any]]) -> None:
        """Measures the configs without a known time and stores their seconds per step in `known`:
        the baseline's median times the median over rounds of the ratio to the baseline.

        configs: (config, prepared data), the baseline first. They are measured in alternating
        order over several rounds, so that warm-up and changing load affect all of them equally.
        """
        baseline = self._key(configs[0][0])
        by_key = {self._key(config): (config, prepared) for config, prepared in configs}
        new = [key for key in by_key if key == baseline or key not in self.known]
        if self.known.keys() >= {*new}:
            return
        measure(*configs[0])  # warm-up of the process
        rounds: list[dict[str, float]] = []
        for i in range(ROUNDS):
            order = reversed(new) if i % 2 else new
            rounds.append({key: measure(*by_key[key], self.min_seconds).step for key in order})
        base = self.known.setdefault(baseline, statistics.median(r[baseline] for r in rounds))
        for key in new:
            relative = statistics.median(seconds[key] / seconds[baseline] for seconds in rounds)
            self.known.setdefault(key, base * relative)

    def overhead(self, config: Config, prepared: Any, steps: int) -> float:
        """Returns the seconds of a run outside of its steps: building the model, and
        validations.
        """
        pace, interval = self.pace(config, prepared), config["trainer"].get("val_every")
        return pace.start + pace.check * (math.ceil(steps / interval) if interval else 1)

    def pace(self, config: Config, prepared: Any) -> Pace:
        """Returns the seconds of the phases of a run; measured once."""
        key = self._key(config)
        if key not in self.paces:
            self.paces[key] = measure(config, prepared, self.min_seconds)
        return self.paces[key]

    @staticmethod
    def _key(config: Config) -> str:
        """Returns the hash of a config without its seed and number of steps."""
        return config_hash({**config, "seed": 0, "trainer": {**config["trainer"], "max_steps": 1}})

    def write(self) -> None:
        """Saves the measured times."""
        if self.known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            summary.write(self.known, self.path)


def _read(path: Path) -> dict[str, float]:
    """Returns config hash -> seconds; empty for a missing or damaged file."""
    try:
        times = read_object(path, {})
    except (FileNotFoundError, ConfigError):
        return {}
    return {k: v for k, v in times.items() if isinstance(v, float) and 0 < v < math.inf}


def measure(config: Config, prepared: Any, min_seconds: float = 0.0) -> Pace:
    """Returns the median seconds over MEASURED_STEPS steps (more, until they take `min_seconds`)
    and a few validation batches, on a GPU if there is one, without compilation.
    """
    from xformer_kit.data.preparation.training_data import TrainingData, set_tokenizers

    objective = set_tokenizers(objective_of(config), prepared)
    source, device = objective.source_tokenizer, "cuda" if torch.cuda.is_available() else "cpu"
    began = time.perf_counter()
    model = build(
        config,
        config["model"].get("vocab_size") or prepared.tokenizer.size,
        None if source is objective.tokenizer else source.size,
    )
    model.to(device).train()
    optimizer = OPTIMIZERS.create(config["optim"], model=model, fused=None)
    data = TrainingData(config, prepared, objective)
    start = time.perf_counter() - began
    loop = _Loop(config["trainer"], model, objective, optimizer, device)
    steps, examples = data.step_sampler(1, 0, 1), data.examples("train")
    times: list[float] = []
    while len(times) < WARMUP_STEPS + MEASURED_STEPS or (
        sum(times[WARMUP_STEPS:]) < min_seconds and len(times) < MAX_STEPS
    ):
        times.append(loop.timed(loop.step, examples, steps.keys(len(times) % data.total_steps)))
    batches = data.valid_batches(data.rows)
    limit = config["trainer"].get("limit_val_batches")
    if limit is not None:
        batches = batches[: limit if isinstance(limit, int) else int(limit * len(batches))]
    checks = [
        loop.timed(loop.check, data.examples("valid"), batch)
        for _, batch in batches[: VALIDATION_BATCHES + 1]
    ]
    check = statistics.median(checks[1:] or checks) * len(batches) if checks else 0.0
    return Pace(start, statistics.median(times[WARMUP_STEPS:]), check)


@dataclass
class _Loop:
    """The steps of a training loop, as in `tasks.modules.module.Task`."""

    trainer: Config
    model: Any
    objective: Any
    optimizer: Any
    device: str

    def timed(self, call: Callable[[Any], None], examples: Any, chosen: list[int]) -> float:
        """Returns the seconds of a call, including reading the examples."""
        began = time.perf_counter()
        batch = map_tensors(collate([examples[i] for i in chosen]), lambda x: x.to(self.device))
        with autocast(precision({"trainer": self.trainer}), self.device):
            call(batch)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def step(self, batch: Any) -> None:
        """Trains on a batch."""
        total = 0.0
        for part in self._parts(batch):
            loss, count, report = self.objective.loss(self.model, part)
            (loss + report.get("loss", 0.0) * count).backward()
            total += float(count)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch.nn.utils.get_total_norm(gradients)
        torch._foreach_mul_(gradients, 1 / total)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _parts(self, batch: Any) -> Iterator[Any]:
        """Yields the micro-batches; one for `auto`."""
        accumulate = self.trainer.get("accumulate", "auto")
        count = accumulate if isinstance(accumulate, int) else 1
        rows = num_rows(batch) // count
        for start in range(0, count * rows, rows):
            yield map_tensors(batch, itemgetter(slice(start, start + rows)))

    def check(self, batch: Any) -> None:
        """Computes the loss of a validation batch."""
        self.model.eval()
        with torch.no_grad():
            self.objective.loss(self.model, batch)
        self.model.train()
