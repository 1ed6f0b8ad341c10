"""What draws random numbers, and from which generator."""

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TORCH = "torch's global generator"
MANY = 512  # numbers that are never equal by chance, also of rare events
T = TypeVar("T")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A context with torch's global generator at this seed, after which its state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


class Draws:
    """Records which global generators a function advances.

    Attribute names: of the generators that it advanced.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._ends: dict[int, bytes] = {}  # seed -> state of torch's generator after the function

    def of(self, function: Callable[[], T], seed: int) -> T:
        """Returns the value of a function, called with torch's global generator at this seed."""
        with seeded(seed):
            before = _states()
            value = function()
            after = _states()
        self._ends[seed] = after[TORCH]
        self.names |= {name for name in before if before[name] != after[name]}
        return value

    @property
    def sets_state(self) -> bool:
        """Whether torch's generator had one state after the function for all seeds."""
        return len(self._ends) > 1 and len(set(self._ends.values())) == 1


def _states() -> dict[str, Any]:
    state: Any = np.random.get_state()
    return {
        TORCH: torch.default_generator.get_state().numpy().tobytes(),
        "Python's `random`": random.getstate(),
        "numpy's global generator": pickle.dumps(state),
    }


class RandomOperations(TorchDispatchMode):
    """Records the random operations of torch and what they drew, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.drawn: list[Tensor] = []
        self.with_own_generator: list[str] = []  # those that are given a torch.Generator

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in operation.tags:
            name = operation.overloadpacket.__name__
            self.names.append(name)
            tensors = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
            self.drawn.append(tensors[-1].clone())  # of dropout, the mask
            if isinstance((kwargs or {}).get("generator"), torch.Generator):
                self.with_own_generator.append(name)
        return out

    def equal_to(self, other: "RandomOperations") -> Iterator[str]:
        """Yields the names of operations that drew the same numbers as in `other`."""
        for name, drawn, again in zip(self.names, self.drawn, other.drawn, strict=False):
            if drawn.numel() >= MANY and torch.equal(drawn, again):
                yield name
