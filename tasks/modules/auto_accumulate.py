"""trainer.accumulate=auto: the fewest micro-batches per step that fit into the device's memory."""

from collections.abc import Callable
from typing import Any

import torch

from tasks.process.ranks import DataRank
from xformer_kit.data.buckets import ROW_MULTIPLE, step_rows
from xformer_kit.registry import config_error


def micro_batches(task: Any) -> int:
    """Returns trainer.accumulate; for auto the checkpoint's value, or the smallest number of
    micro-batches that fit into the device's memory. task: as in `fewest_micro_batches`.
    """
    wanted = task.config["trainer"].get("accumulate", "auto")
    if isinstance(wanted, int):
        return wanted
    # Of a sharded model all ranks must run out of memory together.
    if task.step or task.device.type != "cuda" or task.is_sharded:
        return task.accumulate
    return fewest_micro_batches(task)


def fewest_micro_batches(task: Any) -> int:
    """Runs forward and backward with 1, 2, ... micro-batches per step until one does not run out of
    memory; returns their number, the largest of all ranks.

    During each attempt, the memory of the optimizer's two values per parameter is allocated.
    Raises ConfigError if not even one sequence fits. task: a Task in `on_fit_start`.
    """
    model, device, data = task.model, task.device, task.config["data"]
    data_ranks = DataRank.of(task.trainer).ranks
    rows = step_rows(data)
    # A divisor of the number of rows of every batch.
    unit = max(data_ranks, min(rows, ROW_MULTIPLE)) if data.get("batch_tokens") else rows

    def attempt(units: int) -> None:
        """Forward and backward on `units` units of rows."""
        states = [
            torch.empty(2, *p.shape, dtype=p.dtype, device=device) for p in model.parameters()
        ]
        blank = task.objective.blank(max(1, units * rows // unit), data["seq_len"], device)
        task.loss_sum(blank).backward()
        del states

    def clean_up() -> None:
        model.zero_grad()
        torch.cuda.empty_cache()

    count = fewest_parts(unit, data_ranks, attempt, clean_up)
    if data_ranks > 1:
        largest = torch.tensor(count, device=device)
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        count = int(largest)
    return count


def fewest_parts(
    batch: int, data_ranks: int, attempt: Callable[[int], None], clean_up: Callable[[], None]
) -> int:
    """Returns the smallest divisor n of a rank's share of a batch for which `attempt(share / n)`
    does not run out of memory. `clean_up` is called after each attempt.
    """
    share = batch // data_ranks
    for parts in (n for n in range(1, share + 1) if share % n == 0):
        try:
            attempt(share // parts)
            return parts
        except torch.OutOfMemoryError:
            continue
        finally:
            clean_up()
    raise config_error(
        "trainer.accumulate",
        "not even one sequence of data.seq_len fits into the device's memory",
        got=f"auto, and {batch} sequences on {data_ranks} devices",
        fix="Lower data.seq_len or model.dim, or take a larger device.",
    )
