"""The data set of a loader: the examples of a split, transformed by the objective."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from xformer_kit.data.batch import Example
from xformer_kit.data.order import example_generator
from xformer_kit.files.user_modules import UserModule, run_missing, user_modules

Transform = Callable[[Example, torch.Generator], Example]


@dataclass(eq=False)
class Examples:
    """The examples of a data set of n examples, transformed by the objective.

    Key k is example k % n of epoch k // n. For a mixture k % n is a position, which holds another
    example in each epoch. The random numbers of an example (masking, corruption) are a function of
    (seed, epoch, index), so that they differ between epochs and are the same in a resumed run.
    """

    dataset: Any
    transform: Transform | None
    seed: int

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: int) -> Example:
        epoch, index = divmod(key, len(self.dataset))
        indices = getattr(self.dataset, "example_indices", None)  # of a mixture
        example = self.dataset[index if indices is None else indices(self.seed, epoch, index)]
        if self.transform is None:
            return example
        return self.transform(example, example_generator(self.seed, epoch, index))

    def __reduce__(self) -> Any:
        """Pickles the examples for a loader process, which has none of the user's modules."""
        content = pickle.dumps((self.dataset, self.transform, self.seed))
        return _unpickle, (user_modules(), content)


def _unpickle(modules: list[UserModule], content: bytes) -> Examples:
    """Returns the examples from what `__reduce__` pickled."""
    run_missing(modules)
    return Examples(*pickle.loads(content))
