"""Tiny models for objectives, and tokenizers that need no text."""

import numpy as np
import torch

from xformer_kit.data.tokenizer import Tokenizer as BaseTokenizer
from xformer_kit.laws import tiny_config
from xformer_kit.model.build import build_model
from xformer_kit.objective import objective_of

WORDS = 20  # tokens of the text: their ids are 0 .. 19


class Tokenizer(BaseTokenizer):
    """A vocabulary of numbers, with the special tokens after it."""

    vocab_size = WORDS

    def __init__(self, specials, size=WORDS):
        self.vocab_size, self.specials = size, specials


def stacks_of(model, **changes):
    """A tiny config with the stacks of `model`: encoder, decoder or encoder_decoder."""
    config = tiny_config(**changes)
    del config["model"]["decoder"]
    for stack in ("encoder", "decoder"):
        if stack in model:
            config["model"][stack] = {"mask": {"name": "full"}} if stack == "encoder" else {}
    return config


def made(task, model, *, through="causal", **options):
    """(objective with its tokenizer, model of float64 that is moved away from its start)."""
    config = stacks_of(model, mask=through) | {"task": {"name": task, **options}}
    objective = objective_of(config)
    objective.tokenizer = objective.source_tokenizer = Tokenizer(objective.specials)
    built = build_model(config, objective.tokenizer.size).double().eval()
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(
                0.4 * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
            )
    return objective, built


def ids(*numbers):
    return np.array(numbers, dtype=np.int64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def alike(seen, expected=None):
    """The probability of counts as far from `expected` as these, or further (Pearson's
    chi-squared). None: all alike.
    """
    seen = torch.as_tensor(np.array(seen), dtype=torch.float64)
    expected = (
        seen.mean().expand_as(seen)
        if expected is None
        else torch.as_tensor(expected, dtype=torch.float64)
    )
    statistic = ((seen - expected).square() / expected).sum()
    return torch.special.gammaincc(
        torch.tensor((len(seen) - 1) / 2, dtype=torch.float64), statistic / 2
    ).item()
