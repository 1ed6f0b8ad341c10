"""What does a loader read? The example at a place of the run: its text, and what an objective makes
of it.
"""

from collections.abc import Callable
from typing import Any

import torch

from xformer_kit.data.batch import Example
from xformer_kit.data.order import example_generator

Make = Callable[[Example, torch.Generator], Example]


class Examples:
    """dataset[index] as the objective sees it in an epoch. Key k stands for index k % n of epoch k
    // n, n examples; of a mixture for a place of the epoch, which holds another example in each.

    What is random about an example (masking, corruption) is a function of (seed, epoch, index), so
    that each epoch has its own and a run that goes on has the same.
    """

    def __init__(self, dataset: Any, make: Make | None, seed: int):
        self.dataset = dataset
        self.make = make
        self.seed = seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: int) -> Example:
        epoch, index = divmod(key, len(self.dataset))
        rows = getattr(self.dataset, "rows", None)  # of a mixture
        example = self.dataset[index if rows is None else rows(self.seed, epoch, index)]
        return (
            example
            if self.make is None
            else self.make(example, example_generator(self.seed, epoch, index))
        )
