"""Compares ejected files with the models that they are written from, bit for bit."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from xformer_kit.eject import eject
from xformer_kit.eject.check import as_module, with_kernel
from xformer_kit.laws.tiny_composition import randomise
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model

TARGET, SOURCE = 13, 11
LENGTHS = torch.tensor([5, 11, 8])[:, None]


def pair(
    config: Mapping[str, Any],
    vocab: int,
    source_vocab: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[Model, Any, str]:
    """Returns a model with random weights, the model of its ejected file with the same, and the
    file.
    """
    text = eject(config, vocab, source_vocab)
    ours = build_model(with_kernel(config), vocab, source_vocab).eval()
    randomise(ours)
    module = as_module(text)
    theirs = module.Transformer(module.Config())
    theirs.load_state_dict(ours.state_dict())
    return ours.to(dtype), theirs.eval().to(dtype), text


def calls(ours: Model, theirs: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yields (what is padded, our logits of real tokens, theirs) of random texts."""
    ids = torch.randint(0, ours.vocab_size, (3, TARGET))
    source = torch.randint(0, ours.source_vocab_size, (3, SOURCE))
    more = {"prefix": torch.arange(TARGET) < LENGTHS - 3} if ours.stack.sees_prefix else {}
    if ours.two_stacks:
        for name, real in (("", None), ("source", torch.arange(SOURCE) < LENGTHS)):
            own = ours(source=source, target=ids, source_real=real, **more)
            yield name, own, theirs(source, ids, real, **more)
    elif ours.names == ("encoder",):
        yield "", ours(ids, **more), theirs(ids, **more)
        real = torch.arange(TARGET) < LENGTHS
        yield "text", ours(ids, real=real, **more)[real], theirs(ids, real, **more)[real]
    else:
        yield "", ours(ids, **more), theirs(ids, **more)


def unequal(ours: Model, theirs: Any) -> list[str]:
    """Returns what differs: the logits, or the gradients of these parameters."""
    found = []
    for padded, own, their in calls(ours, theirs):
        if not torch.equal(own, their):
            found.append(f"logits {padded}")
        weights = torch.randn(own.shape).to(own.dtype)
        for model, logits in ((ours, own), (theirs, their)):
            model.zero_grad()
            (logits.log_softmax(-1) * weights).sum().backward()
        gradients = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            one, two = (_gradient(p) for p in (parameter, gradients[name]))
            if not torch.equal(one, two):
                found.append(f"{name} {padded}")
    return found


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
