"""Checks all laws for random compositions, in several processes."""

import random
import shlex
from collections.abc import Iterator
from multiprocessing import get_context

import torch

from xformer_kit.laws.building import among_many
from xformer_kit.laws.composition import LawBroken, overrides
from xformer_kit.laws.registry import LAWS
from xformer_kit.laws.variants import Row, composed, drawn, wrong
from xformer_kit.registry import Node

TELL = 100  # compositions between two lines of progress


def judged(config: Node) -> list[str]:
    """Returns a message for each law that a composition breaks."""
    found = []
    for name, law in LAWS.items():
        try:
            with among_many():
                law(config)
        except LawBroken as error:
            found.append(f"{name}: {error.what}")
        except Exception as error:
            found.append(f"{name}: raised {type(error).__name__}: {error}")
    return found


def rows(count: int, seed: int) -> Iterator[Row]:
    """Yields `count` different random compositions that are not refused."""
    draw, seen = random.Random(seed), set[Row]()
    while len(seen) < count:
        row = drawn(draw)
        if row not in seen and not wrong(row):
            seen.add(row)
            yield row


def many(count: int, seed: int, processes: int) -> int:
    """Checks all laws for random compositions. Returns the number of compositions that break a law,
    and prints a command that reproduces each.
    """
    failed = 0
    with get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        for i, (line, found) in enumerate(pool.imap(_with_line, rows(count, seed)), 1):
            if found:
                failed += 1
                print(*found, f"  python -m xformer_kit.laws {line}", sep="\n", flush=True)
            if i % TELL == 0 or i == count:
                print(
                    f"{i:,} of {count:,} compositions (seed {seed}): {i - failed:,} keep every law",
                    flush=True,
                )
    return failed


def _with_line(row: Row) -> tuple[str, list[str]]:
    config = composed(row)
    return shlex.join(overrides(config)), judged(config)
