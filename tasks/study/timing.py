"""The time of a step, measured on this machine, once for each config, and kept next to the
plan.

What a budget of seconds gives a variant must not change when the study goes on, so a measured time
is written down.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
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
from xformer_kit.objective import objective_of
from xformer_kit.optim import OPTIMIZERS
from xformer_kit.registry import ConfigError
from xformer_kit.registry.saved_files import read_object
from xformer_kit.study.nodes import Config

WARM, MEASURED, MOST = 2, 5, 500  # steps
# in which all variants are measured one after another; seconds, where a budget rests on them
ROUNDS, LONG = 3, 0.4
JUDGED = 3  # batches of validation
FILE = "seconds_per_step.json"


class Pace(NamedTuple):
    """Seconds of the parts of a run."""

    start: float  # building the model
    step: float  # an optimizer step with its data
    check: float  # a validation


class StepClock:
    """Seconds of an optimizer step of a config: data, forward, backward, clipping and the
    optimizer's own work.
    """

    def __init__(self, folder: Path, long: float = 0.0):
        # at least so many seconds of each
        self.path = folder / FILE
        self.long = long
        self.known = _read(self.path)
        self.paces: dict[str, Pace] = {}

    def __call__(self, config: Config, prepared: Any) -> float:
        key = self._key(config)
        if key not in self.known:
            self.known[key] = self._pace(config, prepared).step
        return self.known[key]

    def together(self, asked: Sequence[tuple[Config, Any]]) -> None:
        """Measure configs that are compared with each other, the first of them the baseline: in
        turns, forth and back, so that none has the process to itself while it is cold or the
        machine while it is busy. Each has the median over the turns of what it takes relative to
        the baseline.
        """
        first = self._key(asked[0][0])
        every = {self._key(one[0]): one for one in asked}
        new = {key: one for key, one in every.items() if key == first or key not in self.known}
        if new.keys() <= self.known.keys():
            return
        measured(*asked[0])  # what a process does once
        turns: list[dict[str, float]] = []
        for turn in range(ROUNDS):
            order = reversed(new) if turn % 2 else new
            turns.append({key: measured(*new[key], self.long).step for key in order})
        base = self.known.setdefault(first, statistics.median(taken[first] for taken in turns))
        for key in new:
            relative = statistics.median(taken[key] / taken[first] for taken in turns)
            self.known.setdefault(key, base * relative)

    def beside(self, config: Config, prepared: Any, steps: int) -> float:
        """Seconds of a run outside its steps: building the model, and its validations."""
        pace, every = self._pace(config, prepared), config["trainer"].get("val_every")
        return pace.start + pace.check * (math.ceil(steps / every) if every else 1)

    def _pace(self, config: Config, prepared: Any) -> Pace:
        key = self._key(config)
        if key not in self.paces:
            self.paces[key] = measured(config, prepared, self.long)
        return self.paces[key]

    @staticmethod
    def _key(config: Config) -> str:
        return config_hash({**config, "seed": 0, "trainer": {**config["trainer"], "max_steps": 1}})

    def write(self) -> None:
        if self.known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            summary.write(self.known, self.path)


def _read(path: Path) -> dict[str, float]:
    """Config -> seconds; without those of a damaged file, which are measured again."""
    try:
        found = read_object(path, {})
    except (FileNotFoundError, ConfigError):
        return {}
    return {
        key: taken
        for key, taken in found.items()
        if isinstance(taken, float) and 0 < taken < math.inf
    }


def measured(config: Config, prepared: Any, long: float = 0.0) -> Pace:
    """Medians over a few steps, or as many as take so many seconds, and a few batches of
    validation, on a GPU where there is one; without compilation.
    """
    from xformer_kit.data.training_data import TrainingData, attach_tokenizers

    objective = attach_tokenizers(objective_of(config), prepared)
    source, device = objective.source_tokenizer, "cuda" if torch.cuda.is_available() else "cpu"
    began = time.perf_counter()
    model = (
        build(
            config,
            config["model"].get("vocab_size") or prepared.tokenizer.size,
            None if source is objective.tokenizer else source.size,
        )
        .to(device)
        .train()
    )
    optimizer = OPTIMIZERS.create(config["optim"], model=model, fused=None)
    data = TrainingData(config, prepared, objective)
    start = time.perf_counter() - began
    work = _Work(config["trainer"], model, objective, optimizer, device)
    steps, examples = data.step_sampler(1, 0, 1), data.examples("train")
    taken: list[float] = []
    while len(taken) < WARM + MEASURED or (sum(taken[WARM:]) < long and len(taken) < MOST):
        taken.append(work.timed(work.step, examples, steps.indices(len(taken) % data.total_steps)))
    batches = [batch for _, batch in data.valid_batches(data.rows)]
    limit = config["trainer"].get("limit_val_batches")
    share = 1.0 if limit is None else limit
    batches = batches[: share if isinstance(share, int) else int(share * len(batches))]
    judged = [
        work.timed(work.check, data.examples("valid"), batch) for batch in batches[: JUDGED + 1]
    ]
    check = statistics.median(judged[1:] or judged) * len(batches) if judged else 0.0
    return Pace(start, statistics.median(taken[WARM:]), check)


@dataclass
class _Work:
    """What a run does again and again, as `tasks.module.Task` does it."""

    trainer: Config
    model: Any
    objective: Any
    optimizer: Any
    device: str

    def timed(self, what: Callable[[Any], None], examples: Any, chosen: list[int]) -> float:
        """Seconds, with reading the examples."""
        began = time.perf_counter()
        batch = map_tensors(collate([examples[i] for i in chosen]), lambda x: x.to(self.device))
        with self._precision():
            what(batch)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def step(self, batch: Any) -> None:
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
        """Micro-batches; `auto` is all at once."""
        count = self.trainer.get("accumulate", "auto")
        parts = count if isinstance(count, int) else 1
        rows = num_rows(batch) // parts
        for n in range(parts):
            mine = slice(n * rows, (n + 1) * rows)
            yield batch if parts == 1 else map_tensors(batch, itemgetter(mine))

    def check(self, batch: Any) -> None:
        self.model.eval()
        with torch.no_grad():
            self.objective.loss(self.model, batch)
        self.model.train()

    def _precision(self) -> AbstractContextManager[Any]:
        """Mixed precision where the run has it: on a GPU, where nothing else is said."""
        wanted = self.trainer.get("precision", "auto")
        mixed = self.device == "cuda"
        if isinstance(wanted, str) and wanted != "auto":
            mixed = wanted.endswith("mixed")
        half = torch.float16 if wanted == "16-mixed" else torch.bfloat16
        return torch.autocast(self.device, half) if mixed else nullcontext()
