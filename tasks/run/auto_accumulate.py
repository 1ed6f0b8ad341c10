"""The fewest micro-batches per step that fit into the device's memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tasks import Config
from xformer_kit.data.buckets import ROW_MULTIPLE, step_rows
from xformer_kit.registry import config_error


def fewest(
    model: nn.Module, objective: Any, config: Config, trainer: Any, device: torch.device
) -> int:
    """Try forward and backward with 1, 2, ... micro-batches; all ranks use the largest result.

    Memory for the optimizer's two values per parameter is allocated during the attempts. Raises
    ConfigError if not even one sequence fits.
    """
    world = trainer.world_size
    length = config["data"]["seq_len"]

    def attempt(rows: int) -> None:
        kept = [torch.empty(2, *p.shape, dtype=p.dtype, device=device) for p in model.parameters()]
        with trainer.precision_plugin.train_step_context():
            loss, count, report = objective.loss(model, objective.blank(rows, length, device))
        (loss + report["loss"] * count if "loss" in report else loss).backward()
        del kept

    def clean() -> None:
        model.zero_grad()
        torch.cuda.empty_cache()

    rows = step_rows(config["data"])
    # Divides the rows of all batches.
    unit = max(world, min(rows, ROW_MULTIPLE)) if config["data"].get("batch_tokens") else rows
    found = search(unit, world, lambda some: attempt(max(1, some * rows // unit)), clean)
    if world > 1:
        most = torch.tensor(found, device=device)
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        found = int(most)
    return found


def search(
    batch: int, world: int, attempt: Callable[[int], None], clean: Callable[[], None]
) -> int:
    """The fewest equal parts of a global batch at which `attempt(rows)` does not run out of
    memory.
    """
    each = batch // world
    for parts in (n for n in range(1, each + 1) if each % n == 0):
        try:
            attempt(each // parts)
            return parts
        except torch.OutOfMemoryError:
            continue
        finally:
            clean()
    raise config_error(
        "trainer.accumulate",
        "not even one sequence of data.seq_len fits into the device's memory",
        got=f"auto, and {batch} sequences on {world} devices",
        fix="Lower data.seq_len or model.dim, or take a larger device.",
    )
