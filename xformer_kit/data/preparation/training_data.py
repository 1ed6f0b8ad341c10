"""Batches and loaders of a prepared corpus, for training and validation. The order of examples does
not depend on the number of devices. Loader processes end with the process that trains.
"""

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from xformer_kit.data.batch import collate
from xformer_kit.data.buckets import LengthBatches, batches_by_length, step_rows
from xformer_kit.data.examples import Examples
from xformer_kit.data.mixing import MixedExamples
from xformer_kit.data.order import GlobalBatches, StepBatches
from xformer_kit.data.plain import Plain
from xformer_kit.data.preparation.prepare import Prepared
from xformer_kit.data.run_length import run_steps
from xformer_kit.data.tokenizer.published_ids import set_specials
from xformer_kit.registry import config_error


@dataclass(eq=False)
class StepSampler:
    """A `batch_sampler` that yields, for each optimizer step from `start` to `stop`, the keys of
    one rank's examples.

    The key of an example is epoch * n + i, with n examples in an epoch; i is the example's index,
    or its position in the order of a mixture. Micro-batch k is the k-th of `accumulate` equal
    slices of the list. overfit_batches: if above 0, the first `overfit_batches` steps are repeated.
    Raises ConfigError if the global batch is not a multiple of accumulation times devices.
    """

    batches: StepBatches
    _: KW_ONLY
    stop: int
    accumulate: int = 1
    rank: int = 0
    world: int = 1
    overfit_batches: int = 0
    start: int = 0  # steps completed before a run is resumed

    def __post_init__(self) -> None:
        self.batches.check_divisible(self.accumulate, self.world)

    def __len__(self) -> int:
        return max(0, self.stop - self.start)

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.keys, range(self.start, self.stop))

    def keys(self, step: int) -> list[int]:
        """Returns the keys of this rank's examples of a step."""
        step = step % self.overfit_batches if self.overfit_batches else step
        first = self.batches.epoch(step) * self.batches.n
        return [
            first + i
            for micro in range(self.accumulate)
            for i in self.batches.micro_batch(step, micro, self.accumulate, self.rank, self.world)
        ]


class TrainingData:
    """The training and validation splits of a prepared corpus, with their batches and loaders."""

    def __init__(self, config: Plain, prepared: Prepared, objective: Any):
        self.config = config
        self.prepared = prepared
        self.objective = objective
        data = config["data"]
        trainer = config["trainer"]
        self.seed = seed = config["seed"] if data.get("seed") is None else data["seed"]
        self.one_stream = "encoder" not in config["model"]  # a source is put before its target
        self.batches: StepBatches
        train, batch_tokens = prepared.train, data.get("batch_tokens")
        if batch_tokens is None:
            self.batches = GlobalBatches(len(train), data["batch_size"], seed)
        elif hasattr(train, "lengths"):  # examples of several lengths
            mixed = train if isinstance(train, MixedExamples) else None
            self.batches = LengthBatches(train.lengths, batch_tokens, seed, self.one_stream, mixed)
        else:
            raise config_error(
                "data.batch_tokens",
                f"is about examples of several lengths; data={data['name']} has one",
                fix="Leave it null.",
            )
        steps_per_epoch = self.batches.steps_per_epoch
        limit = trainer.get("limit_train_batches")
        if limit is not None:
            count = limit if isinstance(limit, int) else int(limit * steps_per_epoch)
            steps_per_epoch = min(steps_per_epoch, max(1, count))
            self.batches.steps_per_epoch = steps_per_epoch
        self.overfit_batches = min(trainer.get("overfit_batches") or 0, steps_per_epoch)

    @property
    def rows(self) -> int:
        """Rows of data.seq_len tokens in a step, over all devices and micro-batches."""
        return step_rows(self.config["data"])

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the run."""
        return run_steps(self.config, self.batches.steps_per_epoch)

    def step_sampler(self, accumulate: int, rank: int, world: int, start: int = 0) -> StepSampler:
        return StepSampler(
            self.batches,
            stop=self.total_steps,
            accumulate=accumulate,
            rank=rank,
            world=world,
            overfit_batches=self.overfit_batches,
            start=start,
        )

    def valid_loader(
        self, rows: int, device: torch.device, rank: int = 0, world: int = 1
    ) -> DataLoader:
        """Returns the loader of the validation split: every example once over all ranks, in batches
        of `rows`. All ranks have equally many batches: at the end of those of `valid_batches`,
        a rank with fewer than the first has batches of the first, for models that ranks compute
        together.

        With data.batch_tokens or data.valid_len, a batch has as many rows as fit into
        rows * data.seq_len tokens. With trainer.overfit_batches, the split is those batches.
        """
        batches = [batch for _, batch in self.valid_batches(rows, rank, world)]
        if rank:
            of_first = self.valid_batches(rows, 0, world)
            batches += [batch for _, batch in of_first[len(batches) :]]
        return self.loader("train" if self.overfit_batches else "valid", batches, device)

    def valid_batches(
        self, rows: int, rank: int = 0, world: int = 1
    ) -> list[tuple[str | None, list[int]]]:
        """Returns (part, indices) of each of this rank's batches of `valid_loader`. The indices are
        those of the validation split; with trainer.overfit_batches, of the training split.

        A batch of a mixture holds examples of one part. The batches of parts alternate, so that a
        few batches cover all parts. Without a mixture, part is None.
        """
        valid = self.prepared.valid
        if self.overfit_batches:  # validates on the training examples
            steps = [self.batches[step] for step in range(self.overfit_batches)]
            training_indices = np.concatenate(steps).tolist()
            return [(None, batch) for batch in _cut(training_indices[rank::world], rows)]
        spans = valid.spans() if hasattr(valid, "spans") else {None: range(len(valid))}
        ordered = []  # (fraction of the part's batches before it, part, batch)
        for part, span in spans.items():
            batches = self._span_batches(span, rows, rank, world)
            ordered += [(k / len(batches), part, batch) for k, batch in enumerate(batches)]
        return [(part, batch) for _, part, batch in sorted(ordered, key=itemgetter(0))]

    def _span_batches(self, span: range, rows: int, rank: int, world: int) -> list[list[int]]:
        """Returns the indices of each of this rank's validation batches of a range of examples."""
        data = self.config["data"]
        if data.get("batch_tokens") is None:
            length_ratio = (data.get("valid_len") or data["seq_len"]) / data["seq_len"]
            return _cut(span[rank::world], max(1, int(rows / length_ratio)))
        lengths = self.prepared.valid.lengths[span.start : span.stop]
        batches = batches_by_length(lengths, rows * data["seq_len"], self.one_stream)[rank::world]
        return [[span.start + i for i in batch] for batch in batches]

    def part_bytes_per_token(self) -> dict[str, float | None]:
        """Returns the bytes per token of each part of the validation split of a mixture; empty
        without a mixture, and with trainer.overfit_batches.
        """
        valid = self.prepared.valid
        if self.overfit_batches or not hasattr(valid, "spans"):
            return {}
        return {name: self._bytes_per_token(part) for name, part in valid.parts.items()}

    def part_counts(self, steps: int) -> dict[str, int]:
        """Returns the number of examples of each part of a mixture in the first `steps` steps;
        empty without a mixture.
        """
        train = self.prepared.train
        if not hasattr(train, "example_indices"):
            return {}
        counts = np.zeros(len(train.parts), dtype=np.int64)
        for step in range(steps):
            repeated = step % self.overfit_batches if self.overfit_batches else step
            counts += train.part_counts(self.batches[repeated])
        return dict(zip(train.parts, counts.tolist(), strict=True))

    def examples(self, split: str) -> Examples:
        """Returns the examples of a split, transformed by the objective."""
        return Examples(getattr(self.prepared, split), self.objective.example, self.seed)

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes per token of the validation split, or of the training split with
        trainer.overfit_batches; None if it is not text or if not every token is predicted.
        """
        return self._bytes_per_token(
            self.prepared.train if self.overfit_batches else self.prepared.valid
        )

    def _bytes_per_token(self, split: Any) -> float | None:
        return (
            getattr(split, "bytes_per_token", None) if self.objective.predicts_every_token else None
        )

    @property
    def unigram_loss(self) -> float | None:
        """Loss in nats per token of a model that has only the frequencies of tokens; None if it is
        not one text or if not every token is predicted.
        """
        if not self.objective.predicts_every_token:
            return None
        return getattr(self.prepared.train, "unigram_entropy", None)

    def loader(self, split: str, batches: Any, device: torch.device) -> DataLoader:
        """Returns the loader of batches of a split: lists of keys, or a StepSampler."""
        workers = self.config["data"].get("num_workers") or 0
        worker_options: dict[str, Any] = {}
        if workers:
            # A worker forked from this process would inherit its threads, signal handlers and
            # perhaps a GPU.
            context = multiprocessing.get_context("forkserver")
            if sys.platform == "linux":  # on other systems libraries do not survive a fork
                # Imported once, not in every worker.
                context.set_forkserver_preload(["__main__", __name__])
            worker_options = {
                "persistent_workers": True,
                "multiprocessing_context": context,
                "worker_init_fn": exit_with_training_process,
            }
        dataset: Any = self.examples(split)
        return DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=collate,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            **worker_options,
        )


def _cut(indices: Sequence[int], rows: int) -> list[list[int]]:
    """Returns the indices in lists of `rows`; the last may be shorter."""
    return [list(indices[i : i + rows]) for i in range(0, len(indices), rows)]


def exit_with_training_process(_worker: int) -> None:
    """Ends this loader process when the process that reads from it has ended, also after a
    kill -9.

    torch checks the parent of the system. Here that is the fork server, which outlives it.
    """
    parent: Any = multiprocessing.parent_process()  # the one that started this process

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def is_running(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        return True


def set_tokenizers(objective: Any, prepared: Any, run: Path | None = None) -> Any:
    """Sets the objective's tokenizers to those of a corpus, replaces the special tokens of these
    tokenizers by those of the objective, and returns the objective. run: see `set_specials`.
    """
    objective.tokenizer = prepared.tokenizer
    objective.source_tokenizer = prepared.source_tokenizer
    for tokenizer in (objective.tokenizer, objective.source_tokenizer):
        set_specials(tokenizer, objective.specials, run)
    return objective


def check_fingerprint(saved: str | None, current: str) -> None:
    """Raises ConfigError if the data of a resumed run differ from those of its start."""
    if saved is not None and saved != current:
        raise config_error(
            "data",
            "the text must be the one that the run began with; its fingerprint was"
            f" {saved[:12]} and is {current[:12]}",
            fix="Bring the old text back, or start a new run.",
        )
