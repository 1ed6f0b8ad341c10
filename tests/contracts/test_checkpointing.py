"""Activation checkpointing changes neither loss nor gradients nor what the components report."""

from functools import partial

import pytest
import torch
from compositions import ALL, TWO_STACKS, batch, loss_of, model_of
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from xformer_kit import ConfigError, build, compose
from xformer_kit.inspect import flops
from xformer_kit.inspect.memory import training_memory
from xformer_kit.model.recomputed import checkpoint_activations
from xformer_kit.model.stack import Stack
from xformer_kit.tensors import canonical


def step(model, tokens):
    """Loss, report, and the gradients by canonical name."""
    loss, report = loss_of(model, tokens)
    loss.backward()
    return loss, report, {canonical(name): p.grad for name, p in model.named_parameters()}


by_option = partial(checkpoint_activations, which="block")
by_selective_option = partial(checkpoint_activations, which="selective")


def by_wrapper(model):
    for stack in stacks_of(model):
        for name, block in stack.named_blocks.items():
            stack.set_submodule(name, checkpoint_wrapper(block))


def stacks_of(model):
    return [module for module in model.modules() if isinstance(module, Stack)]


@pytest.mark.parametrize("name", ALL | TWO_STACKS)
@pytest.mark.parametrize("wrap", [by_option, by_selective_option, by_wrapper])
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


@pytest.mark.parametrize("wrap", [by_option, by_wrapper])
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


def config_of(which, *words):
    words = ["model.layers=4", "model.dim=32", "attn.heads=2", "data.seq_len=64", *words]
    return compose([*words, f"model.checkpoint_activations={which}"], data=False)


def test_memory_falls_with_what_is_computed_again():
    """From all activations to one input of each of four blocks; the peak of a step with it."""
    kept = {w: training_memory(config_of(w), 65) for w in ("none", "2", "selective", "block")}
    none, every_second, selective, block = kept.values()
    assert block.activations < every_second.activations < none.activations
    assert block.activations < selective.activations < none.activations
    assert block.activations < 0.2 * none.activations
    assert every_second.activations == pytest.approx(
        (none.activations + block.activations) / 2, rel=0.05
    )
    assert block.peak < selective.peak < none.peak


def test_flops_do_not_count_what_is_computed_twice():
    counts = [flops.count(build(config_of(w), 65), 64) for w in ("none", "block", "selective")]
    assert counts[0] == counts[1] == counts[2]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0", "model.checkpoint_activations: must be at least 1 blocks; got 0."),
        ("blocks", "model.checkpoint_activations: must be"),
    ],
)
def test_other_values_are_refused(value, message):
    with pytest.raises(ConfigError) as caught:
        config_of(value)
    assert str(caught.value).startswith(message)


def test_a_call_with_a_cache_keeps_its_activations():
    """A second computation would append to the cache again."""
    ids = torch.arange(12).view(2, 6)
    model = build(config_of("block"), 65)
    logits = []
    for parts in ([ids], ids.split(3, 1)):
        cache = model.cache(2, 6)
        logits.append(torch.cat([model(part, cache=cache) for part in parts], 1))
    torch.testing.assert_close(logits[1], logits[0])
    assert cache.length == 6
