"""trainer.accumulate=auto: the fewest micro-batches per step that fit into the device's memory."""

from collections.abc import Callable
from typing import Any

import torch

from xformer_kit.data.buckets import ROW_MULTIPLE, step_rows
from xformer_kit.registry import config_error


def fewest_micro_batches(task: Any) -> int:
    """Runs forward and backward with 1, 2, ... micro-batches per step until one does not run out of
    memory; returns their number, the largest of all ranks.

    During each attempt, the memory of the optimizer's two values per parameter is allocated.
    Raises ConfigError if not even one sequence fits. task: a Task in `on_fit_start`.
    """
    model, device, data = task.model, task.device, task.config["data"]
    world_size = task.trainer.world_size
    rows = step_rows(data)
    # A divisor of the number of rows of every batch.
    unit = max(world_size, min(rows, ROW_MULTIPLE)) if data.get("batch_tokens") else rows

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

    count = fewest_parts(unit, world_size, attempt, clean_up)
    if world_size > 1:
        largest = torch.tensor(count, device=device)
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        count = int(largest)
    return count


def fewest_parts(
    batch: int, world_size: int, attempt: Callable[[int], None], clean_up: Callable[[], None]
) -> int:
    """Returns the smallest divisor n of a rank's share of a batch for which `attempt(share / n)`
    does not run out of memory. `clean_up` is called after each attempt.
    """
    share = batch // world_size
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
        got=f"auto, and {batch} sequences on {world_size} devices",
        fix="Lower data.seq_len or model.dim, or take a larger device.",
    )
