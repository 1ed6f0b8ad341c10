"""Checks all laws for random compositions, in several processes."""

import random
from collections.abc import Iterator
from multiprocessing import get_context

import torch

from xformer_kit.laws.building import sampled_comparisons
from xformer_kit.laws.registry import LAWS
from xformer_kit.laws.tiny_composition import LawBroken, overrides
from xformer_kit.laws.variants import Row, config_of, random_row, row_faults
from xformer_kit.registry import Node
from xformer_kit.text.command_lines import for_shell

PROGRESS_EVERY = 100  # compositions between two lines of progress


def broken_laws(config: Node) -> list[str]:
    """Returns a message for each law that a composition breaks."""
    messages = []
    for name, law in LAWS.items():
        try:
            with sampled_comparisons():
                law(config)
        except LawBroken as error:
            messages.append(f"{name}: {error.message}")
        except Exception as error:
            messages.append(f"{name}: raised {type(error).__name__}: {error}")
    return messages


def random_rows(count: int, seed: int) -> Iterator[Row]:
    """Yields `count` different random compositions that are not refused."""
    draw, seen = random.Random(seed), set[Row]()
    while len(seen) < count:
        row = random_row(draw)
        if row not in seen and not row_faults(row):
            seen.add(row)
            yield row


def check_random_compositions(count: int, seed: int, processes: int) -> int:
    """Checks all laws for random compositions. Returns the number of compositions that break a law,
    and prints a command that reproduces each.
    """
    failed = 0
    with get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        rows = pool.imap(_check_row, random_rows(count, seed))
        for i, (line, messages) in enumerate(rows, 1):
            if messages:
                failed += 1
                print(*messages, f"  python -m xformer_kit.laws {line}", sep="\n", flush=True)
            if i % PROGRESS_EVERY == 0 or i == count:
                print(
                    f"{i:,} of {count:,} compositions (seed {seed}): {i - failed:,} keep every law",
                    flush=True,
                )
    return failed


def _check_row(row: Row) -> tuple[str, list[str]]:
    """Returns the overrides of a composition, and a message for each law that it breaks."""
    config = config_of(row)
    return " ".join(map(for_shell, overrides(config))), broken_laws(config)
