"""Batches of examples: streams of tokens, each padded on the right to its longest.

An example is a mapping of one-dimensional arrays. `tokens`, `source`, `target`: the ids of a
stream. `tokens.document`, `source.segment`, ...: a field of a stream's Tokens, as long as its ids.
`labels`: the id to predict at each place, -1 for none. A batch holds the same names: streams as
Tokens (b, t), labels as a tensor (b, t).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from xformer_kit.model.tokens import Tokens

Example = Mapping[str, np.ndarray]
Batch = dict[str, Tokens | Tensor]


def collate(examples: Sequence[Example]) -> Batch:
    """Examples -> a batch. A stream's `real` is None if nothing of it is padded."""
    names = list(dict.fromkeys(name for example in examples for name in example))
    batch: Batch = {}
    for name in (name for name in names if "." not in name):
        if name == "labels":
            batch[name] = _stacked([e[name] for e in examples], -1)
            continue
        lengths = [len(e[name]) for e in examples]
        made = {
            key.partition(".")[2]: _stacked([_field(e, key, name) for e in examples], 0)
            for key in names
            if key.startswith(f"{name}.")
        }
        if "real" not in made and min(lengths) < max(lengths):
            made["real"] = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        batch[name] = Tokens(ids=_stacked([e[name] for e in examples], 0), **made)
    return batch


def _field(example: Example, key: str, stream: str) -> np.ndarray:
    if key in example:
        return example[key]
    if key.endswith(".real"):  # of an example without padding, in a batch with a padded one
        return np.ones(len(example[stream]), dtype=bool)
    raise KeyError(f"an example lacks {key}, which others of its batch have")


def _stacked(arrays: Sequence[np.ndarray], neutral: int) -> Tensor:
    """(b, longest): int64 of integers, bool of bool."""
    dtype = bool if arrays[0].dtype == bool else np.int64
    rows = [torch.from_numpy(array.astype(dtype)) for array in arrays]
    return pad_sequence(rows, batch_first=True, padding_value=neutral)


def mapped(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The same change on every tensor of a batch."""
    return {
        name: value.map(change) if isinstance(value, Tokens) else change(value)
        for name, value in batch.items()
    }


def rows_of(batch: Batch) -> int:
    """Examples of a batch."""
    first = next(iter(batch.values()))
    return len(first.ids if isinstance(first, Tokens) else first)
