"""What does a model answer? Greedy or beam answers to many examples, in batches of like lengths."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

ROWS = 64  # examples that are answered at once


def answers(
    model: Any, objective: Any, examples: Sequence[Any], *, most: int, rows: int = ROWS, **options: Any
) -> list[np.ndarray]:
    """The ids of the answer to each example, without special tokens, in the order of the examples.

    examples: {"source": ids, "target": ids} without special tokens. most: tokens of an answer. `options` are generate's.
    """
    prompts = [objective.pair(example["source"], example["target"][:0]) for example in examples]
    order = sorted(range(len(prompts)), key=lambda i: _length(prompts[i]))
    found: list[np.ndarray] = [np.empty(0, np.int64)] * len(prompts)
    known = objective.tokenizer.vocab_size
    for start in range(0, len(order), rows):
        some = order[start : start + rows]
        most = min(most, _room(model, prompts[some[-1]]))
        for i, ids in zip(some, _batch(model, objective, [prompts[i] for i in some], most, options), strict=True):
            found[i] = ids[ids < known]
    return found


def _room(model: Any, prompt: Any) -> int:
    """Tokens that the model's positions have room for behind a prompt."""
    if model.longest is None:
        return 2**31
    return max(1, model.longest - (1 if "source" in prompt else int(prompt["tokens.prefix"].sum())))


def _length(prompt: Any) -> int:
    return len(prompt["source"] if "source" in prompt else prompt["tokens"])


def _batch(model: Any, objective: Any, prompts: Sequence[Any], most: int, options: dict) -> Iterator[np.ndarray]:
    from xformer_kit.data.batch import collate, mapped

    start, end = (objective.tokenizer.special(name) for name in objective.specials[:2])
    device = next(model.parameters()).device
    if "source" in prompts[0]:
        source: Any = mapped(collate([{"source": p["source"]} for p in prompts]), lambda x: x.to(device))["source"]
        ids = model.generate(
            source=source.ids, source_real=source.real, start=start, end=end, max_new_tokens=most, **options
        )
        skip = 1
    else:  # the prefix, padded on the left: the answer begins where the prompt ends
        given = [p["tokens"][p["tokens.prefix"]] for p in prompts]
        skip = max(map(len, given))
        padded = torch.tensor([[0] * (skip - len(g)) + g.tolist() for g in given], device=device)
        real = torch.tensor([[False] * (skip - len(g)) + [True] * len(g) for g in given], device=device)
        real = None if bool(real.all()) else real
        ids = model.generate(padded, real=real, end=end, max_new_tokens=most, **options)
    for row in ids[:, skip:].tolist():
        yield np.array(row[: row.index(end)] if end in row else row, dtype=np.int64)
