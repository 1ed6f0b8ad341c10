"""Seeds of dropout and sampling: functions of (seed, step, micro-batch, rank), so that a resumed
run draws the same random numbers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch


def derive_seed(*components: int | str) -> int:
    """Returns a generator seed of 63 bits: a hash of integers and strings, the same on every
    machine.
    """
    digest = blake2b("/".join(map(str, components)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_generators(seed: int, device: torch.device) -> None:
    """Seeds the default generators of the CPU and of the device.

    `torch.manual_seed` also seeds every other back end and takes a hundred times longer.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


@contextmanager
def temporary_seed(device: torch.device, seed: int) -> Iterator[None]:
    """A context with this seed, after which the generators have their previous state."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_generators(seed, device)
        yield
