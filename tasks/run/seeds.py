"""Seeds of dropout and sampling: functions of (seed, step, micro-batch, rank), so that a resumed
run draws the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch


def key(*components: int | str) -> int:
    """A generator seed of 63 bits as a hash of integers and strings, the same on every machine."""
    digest = blake2b("/".join(map(str, components)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def set_generators(seed: int, device: torch.device) -> None:
    """Seed the default generators of the CPU and of the device.

    On the generator objects: `torch.manual_seed` visits every back end and takes a hundred times
    longer.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


@contextmanager
def aside(device: torch.device, seed: int) -> Iterator[None]:
    """A context with its own seed that leaves the training's generators as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        set_generators(seed, device)
        yield
