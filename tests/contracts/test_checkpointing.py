"""Activation checkpointing changes neither loss nor gradients nor what the components report."""

from functools import partial

import pytest
import torch
from compositions import ALL, TWO_STACKS, batch, loss_of, model_of
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

from xformer_kit.model.stack import Stack
from xformer_kit.tensors import canonical


def step(model, tokens):
    """Loss, report, and the gradients by canonical name."""
    loss, report = loss_of(model, tokens)
    loss.backward()
    return loss, report, {canonical(name): p.grad for name, p in model.named_parameters()}


def by_function(model):
    for block in (block for stack in stacks_of(model) for block in stack.named_blocks.values()):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def by_wrapper(model):
    for stack in stacks_of(model):
        for name, block in stack.named_blocks.items():
            stack.set_submodule(name, checkpoint_wrapper(block))


def stacks_of(model):
    return [module for module in model.modules() if isinstance(module, Stack)]


@pytest.mark.parametrize("name", ALL | TWO_STACKS)
@pytest.mark.parametrize("wrap", [by_function, by_wrapper])
def test_same_loss_gradients_and_report(name, wrap):
    tokens = batch(padded=True)
    plain, wrapped = model_of(name, "model.dropout=0.1"), model_of(name, "model.dropout=0.1")
    wrap(wrapped)
    results = []
    for model in (plain, wrapped):
        torch.manual_seed(0)
        results.append(step(model, tokens))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-14)
    assert all(gradient is not None for gradient in results[0][2].values())


@pytest.mark.parametrize("wrap", [by_function, by_wrapper])
def test_blocks_are_computed_twice_and_what_they_read_once(wrap, monkeypatch):
    model, calls = model_of("t5"), {"block": 0, "table": 0}

    def count(what, function, *args):
        calls[what] += 1
        return function(*args)

    place = model.decoder.position["base"]
    monkeypatch.setattr(place, "bias", partial(count, "table", place.bias))
    for block in model.decoder.blocks:
        block.ffn.forward = partial(count, "block", block.ffn.forward)
    wrap(model)
    step(model, batch())
    assert calls == {"block": 2 * 3, "table": 1}


def test_a_wrapped_component_still_gets_its_report():
    model = model_of("router")
    by_wrapper(model)
    _, report, _ = step(model, batch())
    model.after_step(report)
    assert all(block.ffn.bias.abs().sum() > 0 for block in model.decoder.blocks)
