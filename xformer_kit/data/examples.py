"""The data set that a loader reads: the example at a place of the run, transformed by the
objective.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from xformer_kit.data.batch import Example
from xformer_kit.data.order import example_generator

Make = Callable[[Example, torch.Generator], Example]


@dataclass(eq=False)
class Examples:
    """dataset[index], transformed by the objective. Key k stands for index k % n of epoch k // n, n
    examples; of a mixture for a place of the epoch, which holds another example in each.

    The randomness of an example (masking, corruption) is a function of (seed, epoch, index), so
    that it differs between epochs and a resumed run has the same.
    """

    dataset: Any
    make: Make | None
    seed: int

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: int) -> Example:
        epoch, index = divmod(key, len(self.dataset))
        rows = getattr(self.dataset, "rows", None)  # of a mixture
        example = self.dataset[index if rows is None else rows(self.seed, epoch, index)]
        if self.make is None:
            return example
        return self.make(example, example_generator(self.seed, epoch, index))
