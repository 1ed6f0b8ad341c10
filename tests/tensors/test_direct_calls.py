"""In generation modules are called as their `forward`, and hooks still run."""

import copy
import sys

import pytest
import torch
from torch import nn

from benchmarks.peers import Shape, by_hand, by_hand_llama, ours_gpt, ours_llama
from xformer_kit import build, compose
from xformer_kit.generate.prompt import MIN_NEW_TOKENS
from xformer_kit.tensors.direct_calls import with_direct_calls

SMALL = ["task_defaults=null", "model.dim=24", "model.layers=2", "attn.heads=2", "data.seq_len=99"]
IDS = torch.arange(5)[None]
NEW = MIN_NEW_TOKENS + 2


def made(*words):
    return build(compose([*SMALL, *words]), vocab_size=17).eval()


def test_within_the_context_a_call_is_the_forward_and_after_it_nothing_is_left():
    model = made("position=rotary", "norm=rms", "ffn=glu")
    before = {name: (type(m), dict(vars(m))) for name, m in model.named_modules()}
    expected = model(IDS)
    with torch.no_grad(), with_direct_calls(model):
        changed = [m for m in model.modules() if type(m).__call__ is type(m).forward]
        assert len(changed) > 20
        assert "weight" in vars(model.decoder.norm)
        torch.testing.assert_close(model(IDS), expected)
    with pytest.raises(IndexError), with_direct_calls(model):
        model(IDS + 17)  # not in the vocabulary
    for name, module in model.named_modules():
        cls, attributes = before[name]
        assert type(module) is cls
        assert vars(module).keys() == attributes.keys()


def test_a_hook_that_is_registered_before_generation_sees_every_token():
    model, seen = made(), []
    expected = model.generate(IDS, max_new_tokens=NEW, temperature=0.0)
    model.decoder[1].attn.o.register_forward_hook(lambda *call: seen.append(call))
    torch.testing.assert_close(model.generate(IDS, max_new_tokens=NEW, temperature=0.0), expected)
    assert len(seen) == NEW


def test_a_hook_for_all_modules_sees_every_token():
    model, seen = made(), []

    def note(module, *_):
        seen.extend([module] * (module is model.decoder[1].ffn))

    handle = nn.modules.module.register_module_forward_hook(note)
    try:
        model.generate(IDS, max_new_tokens=NEW, temperature=0.0)
    finally:
        handle.remove()
    assert len(seen) == NEW


@pytest.mark.parametrize("kind", ["hook", "pre_hook"])
def test_a_hook_that_is_registered_between_two_tokens_sees_the_later_ones(kind):
    from xformer_kit.generate import stream

    model, seen = made(), []
    for i, _ in enumerate(stream(model, IDS, NEW, temperature=0.0)):
        if i == 9:
            register = getattr(model.decoder[0].ffn, f"register_forward_{kind}")
            register(lambda *call: seen.append(call))
    assert len(seen) == NEW - 10


@pytest.mark.parametrize("change", ["parameter", "module", "none"])
def test_a_part_that_is_replaced_within_the_context_is_used(change):
    model = made("norm=layer")
    norm = model.decoder.norm
    with torch.no_grad(), with_direct_calls(model):
        if change == "parameter":
            norm.weight = nn.Parameter(torch.zeros(24))
        elif change == "module":
            model.decoder.norm = nn.Identity()
        else:
            norm.bias = None
        seen = model(IDS)
    torch.testing.assert_close(model(IDS), seen)


def test_a_copy_within_the_context_is_an_ordinary_model():
    model = made("position=rotary")
    types = [type(module) for module in model.modules()]
    model.generate(IDS, max_new_tokens=NEW, temperature=0.0)
    with torch.no_grad(), with_direct_calls(model):
        other = copy.deepcopy(model)
        assert [type(module) for module in other.modules()] == types
        expected = model(IDS)
        for parameter in model.decoder.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(other(IDS), expected)


def test_a_class_with_a_call_of_its_own_is_called_as_ever():
    class Called(nn.Linear):
        def __call__(self, x):
            return super().__call__(x) + 1

    layer = Called(3, 3)
    with with_direct_calls(layer):
        assert type(layer) is Called


def calls_of_a_token(peer, tokens=32):
    """Python calls for each of `tokens` tokens after the first ones."""
    calls = []
    for count in (MIN_NEW_TOKENS, MIN_NEW_TOKENS + tokens):
        events = []
        sys.setprofile(lambda frame, event, argument, e=events: e.append(event == "call"))
        try:
            peer.generate(IDS, count)
        finally:
            sys.setprofile(None)
        calls.append(sum(events))
    return (calls[1] - calls[0]) / tokens


@pytest.mark.parametrize("pair", [(ours_gpt, by_hand), (ours_llama, by_hand_llama)])
def test_a_token_takes_at_most_twice_the_python_calls_of_a_hand_written_loop(pair):
    shape = Shape(layers=4, dim=24, heads=2, length=99, vocab=17)
    composed, written = (calls_of_a_token(make(shape)) for make in pair)
    assert composed < 2 * written
