"""Batches and loaders over a prepared corpus; the order of examples does not depend on devices."""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from xformer_kit.data.batch import collate
from xformer_kit.data.buckets import LengthBatches, in_order, step_rows
from xformer_kit.data.examples import Examples
from xformer_kit.data.mixing import Mixed
from xformer_kit.data.order import GlobalBatches, StepBatches
from xformer_kit.data.prepare import Prepared
from xformer_kit.data.refused import refused


@dataclass(eq=False)
class StepSampler:
    """The examples of one rank, one list per optimizer step: a `batch_sampler` of steps `start` to
    `stop`.

    An example is epoch * n + index. Micro-batch k is the k-th of `accumulate` equal parts of the
    list. `only` > 0 repeats the first so many batches. Raises ConfigError if the global batch is
    not a multiple of accumulation times devices.
    """

    batches: StepBatches
    _: KW_ONLY
    stop: int
    accumulate: int = 1
    rank: int = 0
    world: int = 1
    only: int = 0
    start: int = 0  # steps that a resumed run has consumed

    def __post_init__(self) -> None:
        self.batches.fits(self.accumulate, self.world)

    def __len__(self) -> int:
        return max(0, self.stop - self.start)

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.of, range(self.start, self.stop))

    def of(self, step: int) -> list[int]:
        """This rank's examples of a step."""
        step = step % self.only if self.only else step
        split = (self.accumulate, self.rank, self.world)
        first = self.batches.epoch(step) * self.batches.n
        return [
            first + i
            for micro in range(self.accumulate)
            for i in self.batches.micro(step, micro, *split)
        ]


class TrainingData:
    """A prepared corpus, its batches, and loaders over them."""

    def __init__(self, config: dict[str, Any], prepared: Prepared, objective: Any):
        self.config = config
        self.prepared = prepared
        self.objective = objective
        data = config["data"]
        trainer = config["trainer"]
        self.seed = seed = config["seed"] if data.get("seed") is None else data["seed"]
        self.together = "encoder" not in config["model"]  # both sides of a pair are one stream
        self.batches: StepBatches
        train, tokens = prepared.train, data.get("batch_tokens")
        if tokens is None:
            self.batches = GlobalBatches(len(train), data["batch_size"], seed)
        elif hasattr(train, "lengths"):
            mixed = train if isinstance(train, Mixed) else None
            self.batches = LengthBatches(train.lengths, tokens, seed, self.together, mixed)
        else:
            raise refused(
                "data.batch_tokens",
                f"is about examples of several lengths; data={data['name']} has one",
                fix="Leave it null.",
            )
        limit = trainer.get("limit_train_batches")
        if limit is not None:
            steps = limit if isinstance(limit, int) else int(limit * self.batches.steps_per_epoch)
            self.batches.steps_per_epoch = min(self.batches.steps_per_epoch, max(1, steps))
        self.only = min(trainer.get("overfit_batches") or 0, self.batches.steps_per_epoch)

    @property
    def rows(self) -> int:
        """Rows of data.seq_len tokens in a step, all devices and accumulation together."""
        return step_rows(self.config["data"])

    @property
    def total_steps(self) -> int:
        """trainer.max_steps, or max_epochs in optimizer steps where that is null; the smaller where
        both are given.
        """
        trainer = self.config["trainer"]
        epochs = trainer.get("max_epochs")
        bounds = [trainer.get("max_steps"), epochs and epochs * self.batches.steps_per_epoch]
        return min(bound for bound in bounds if bound)

    def steps(self, accumulate: int, rank: int, world: int, start: int = 0) -> StepSampler:
        return StepSampler(
            self.batches,
            stop=self.total_steps,
            accumulate=accumulate,
            rank=rank,
            world=world,
            only=self.only,
            start=start,
        )

    def train(self, steps: StepSampler, device: torch.device) -> DataLoader:
        return self._loader("train", steps, device)

    def valid(self, rows: int, device: torch.device, rank: int = 0, world: int = 1) -> DataLoader:
        """Every example of the validation split once over all ranks, `rows` at a time.

        With data.batch_tokens or data.valid_len, as many as fit into `rows` rows of data.seq_len
        tokens.
        """
        batches = [batch for _, batch in self.valid_batches(rows, rank, world)]
        return self._loader("train" if self.only else "valid", batches, device)

    def valid_batches(
        self, rows: int, rank: int = 0, world: int = 1
    ) -> list[tuple[str | None, list[int]]]:
        """(part, indices) of each batch of `valid`. Of a mixture, a batch holds examples of one
        part, and the parts take turns, so that a run that validates on a few batches sees all of
        them; else part is None.
        """
        valid = self.prepared.valid
        if self.only:  # over what the run trains on
            seen = [int(i) for step in range(self.only) for i in self.batches[step]]
            return [(None, batch) for batch in _cut(seen[rank::world], rows)]
        spans = valid.spans() if hasattr(valid, "spans") else {None: range(len(valid))}
        found = []
        for part, span in spans.items():
            batches = self._valid_batches(span, rows, rank, world)
            found += [(k / len(batches), part, batch) for k, batch in enumerate(batches)]
        return [(part, batch) for _, part, batch in sorted(found, key=lambda one: one[0])]

    def _valid_batches(self, span: range, rows: int, rank: int, world: int) -> list[list[int]]:
        data = self.config["data"]
        if data.get("batch_tokens") is None:
            longer = (data.get("valid_len") or data["seq_len"]) / data["seq_len"]
            return _cut(span[rank::world], max(1, int(rows / longer)))
        lengths = self.prepared.valid.lengths[span.start : span.stop]
        batches = in_order(lengths, rows * data["seq_len"], self.together)[rank::world]
        return [[span.start + i for i in batch] for batch in batches]

    def parts(self) -> dict[str, float | None]:
        """The parts of a mixture, each validated by itself, and their bytes per token."""
        valid = self.prepared.valid
        if self.only or not hasattr(valid, "spans"):
            return {}
        return {name: self._bytes_per_token(part) for name, part in valid.parts.items()}

    def counts(self, steps: int) -> dict[str, int]:
        """Number of examples of each part of a mixture in the first steps; empty if there are no
        parts.
        """
        train = self.prepared.train
        if not hasattr(train, "rows"):
            return {}
        counts = sum(
            (
                train.part_counts(self.batches[step % self.only if self.only else step])
                for step in range(steps)
            ),
            start=np.zeros(len(train.parts), dtype=np.int64),
        )
        return dict(zip(train.parts, counts.tolist(), strict=True))

    def examples(self, split: str) -> Examples:
        """A split as the objective sees it. That of validation is always the same: it has one
        epoch.
        """
        return Examples(getattr(self.prepared, split), self.objective.example, self.seed)

    @property
    def bytes_per_token(self) -> float | None:
        """Of the split that is validated on; None if it is not text, or not all of it is
        predicted.
        """
        return self._bytes_per_token(self.prepared.train if self.only else self.prepared.valid)

    def _bytes_per_token(self, split: Any) -> float | None:
        return getattr(split, "bytes_per_token", None) if self.objective.covers else None

    def _loader(self, split: str, batches: Any, device: torch.device) -> DataLoader:
        workers, more = self.config["data"].get("num_workers") or 0, dict[str, Any]()
        if workers:
            # The parent holds threads, signal handlers and perhaps a GPU, which a worker that was
            # forked of it would inherit.
            context = multiprocessing.get_context("forkserver")
            if sys.platform == "linux":  # elsewhere libraries do not outlive a fork
                # Imported once, not by every worker.
                context.set_forkserver_preload(["__main__", __name__])
            more = {
                "persistent_workers": True,
                "multiprocessing_context": context,
                "worker_init_fn": partial(end_with, os.getpid()),
            }
        dataset: Any = self.examples(split)
        return DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=collate,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            **more,
        )


def _cut(indices: Sequence[int], rows: int) -> list[list[int]]:
    return [list(indices[i : i + rows]) for i in range(0, len(indices), rows)]


def end_with(reader: int, _worker: int) -> None:
    """End this loader process when the process that reads from it does, also after a kill -9.

    Its parent is the fork server, which lives as long as it does, so torch's own check of the
    parent does not apply.
    """

    def watch() -> None:
        while True:
            time.sleep(1)
            if not alive(reader):
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        os.kill(process, 0)
        stat = Path(f"/proc/{process}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        return True


def speaking(objective: Any, prepared: Any) -> Any:
    """The objective with the tokenizers of a corpus, which get the objective's special tokens."""
    objective.tokenizer = prepared.tokenizer
    objective.source_tokenizer = prepared.source_tokenizer or prepared.tokenizer
    for tokenizer in (objective.tokenizer, objective.source_tokenizer):
        tokenizer.specials = objective.specials
    return objective


def check_fingerprint(before: str | None, now: str) -> None:
    """Raises ConfigError if a resumed run would use other data than before."""
    if before is not None and before != now:
        raise refused(
            "data",
            "the text must be the one that the run began with; its fingerprint was"
            f" {before[:12]} and is {now[:12]}",
            fix="Bring the old text back, or start a new run.",
        )
