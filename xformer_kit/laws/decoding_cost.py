"""Law of the cost of cached generation."""

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from xformer_kit.laws.registry import law
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.laws.training import mode, training_model
from xformer_kit.model.model import Model
from xformer_kit.tensors.tokens import Tokens

CHUNKS = 5, 1, 1, 4, 1  # lengths of calls; the first single token may fill what later ones read
COUNTED = 2, 4  # of these calls


class _OperationCount(TorchDispatchMode):
    """Counts the torch operations of each name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.counts[operation.overloadpacket.__name__] += 1
        return operation(*args, **(kwargs or {}))


@law("decoding cost", prerequisites=("cache",))
@torch.no_grad()
def decoding_cost(composition: Composition) -> None:
    """With a cache, each new token takes the same number of torch operations, however many are
    before it, and with dropout, which evaluation does not use, as many as without.

    Fails: the 12th token takes 344 operations, the 7th 334: add 41 and 31.
    Fix: Loop over no cached tokens in Python: read `cache.append(...)` as one tensor. Skip dropout
        unless `self.training`.
    """
    composition.require_causal()
    early, late = _operations(composition, composition.shared_model, COUNTED)
    if changed := _difference(early, late):
        raise composition.broken(
            f"the {sum(CHUNKS)}th token takes {sum(late.values())} operations, the"
            f" {sum(CHUNKS[: COUNTED[0] + 1])}th {sum(early.values())}: {changed}"
        )
    with mode(training_model(composition), training=False) as model:
        (with_dropout,) = _operations(composition, model, COUNTED[:1])
    if changed := _difference(early, with_dropout):
        raise composition.broken(
            f"a token takes {sum(with_dropout.values())} operations with dropout and"
            f" {sum(early.values())} without: {changed}"
        )


def _operations(
    composition: Composition, model: Model, counted: tuple[int, ...]
) -> list[Counter[str]]:
    """Returns the numbers of operations of these calls of a model with a cache."""
    cache, source = composition.empty_cache(model), None
    if composition.source is not None:
        source = model.encode(Tokens(ids=composition.source))[0]
    parts = composition.ids[:, : sum(CHUNKS)].split(CHUNKS, 1)
    found = []
    for call in range(counted[-1] + 1):
        if call in counted:
            with _OperationCount() as recorder:
                composition.logits(model, parts[call], source, cache=cache)
            found.append(recorder.counts)
        else:
            composition.hidden(model, parts[call], source, cache=cache)
    return found


def _difference(one: Counter[str], other: Counter[str]) -> str:
    """Returns the operations of which there are more in `other`, or fewer, with both numbers."""
    names = [name for name in one | other if one[name] != other[name]]
    return ", ".join(f"{name} {one[name]} and {other[name]}" for name in names)
