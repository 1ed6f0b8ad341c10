"""Batches of examples: streams of tokens, each padded on the right to the longest of the batch.

An example is a mapping of one-dimensional arrays. `tokens`, `source`, `target`: the ids of a
stream. `tokens.document`, `source.segment`, ...: a field of a stream's Tokens, as long as its ids.
`labels`: the id to predict at each position, -1 for none. A batch has the same names: streams as
Tokens (b, t), labels as a tensor (b, t).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from xformer_kit.tensors.tokens import Tokens

Example = Mapping[str, np.ndarray]
Batch = dict[str, Tokens | Tensor]


def collate(examples: Sequence[Example]) -> Batch:
    """Returns a batch of examples. A stream's `real` is None if it has no padding."""
    keys = dict.fromkeys(chain.from_iterable(examples))
    batch: Batch = {}
    for name in (key for key in keys if "." not in key):
        arrays = [example[name] for example in examples]
        if name == "labels":
            batch[name] = _pad(arrays, -1)
            continue
        fields = {
            key.partition(".")[2]: _pad([_field(example, key, name) for example in examples])
            for key in keys
            if key.startswith(f"{name}.")
        }
        ids, lengths = _pad(arrays), torch.tensor([*map(len, arrays)])
        real = torch.arange(ids.shape[1]) < lengths[:, None]
        if "real" not in fields and not real.all():
            fields["real"] = real
        batch[name] = Tokens(ids=ids, **fields)
    return batch


def _field(example: Example, key: str, stream: str) -> np.ndarray:
    """Returns the field `key` of a stream; a missing `real` is all True."""
    if key.endswith(".real") and key not in example:  # without padding, next to a padded one
        return np.ones(len(example[stream]), dtype=bool)
    return example[key]


def _pad(arrays: Sequence[np.ndarray], padding_value: int = 0) -> Tensor:
    """Pads and stacks arrays to (b, max length), as int64 or bool."""
    dtype = bool if arrays[0].dtype == bool else np.int64
    rows = [torch.from_numpy(array.astype(dtype)) for array in arrays]
    return pad_sequence(rows, batch_first=True, padding_value=padding_value)


def map_tensors(batch: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """Applies a function to every tensor of a batch."""
    return {
        name: value.map(function) if isinstance(value, Tokens) else function(value)
        for name, value in batch.items()
    }


def num_rows(batch: Batch) -> int:
    """Returns the number of examples of a batch."""
    first = next(iter(batch.values()))
    return len(first.ids if isinstance(first, Tokens) else first)
