"""trainer.precision=fp8-mixed: products of hidden linear maps in 8 bits."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from xformer_kit import build, compose
from xformer_kit.config.faults import machine
from xformer_kit.model import float8
from xformer_kit.model.compiling import compile_blocks

pytestmark = [pytest.mark.extended, pytest.mark.filterwarnings("ignore")]
WORDS = [
    ["preset=llama"],
    ["preset=gpt2", "attn.dropout=0", "ffn.dropout=0", "model.dropout=0"],
    ["ffn=moe", "ffn.experts=4"],
    ["attn=latent"],
    ["preset=t5"],
]


def made(words):
    pytest.importorskip("torchao")
    sizes = ["model.dim=64", "model.layers=2", "attn.heads=4"]
    return build(compose([*words, *sizes], data=False), vocab_size=64).train()


def gradients(model, ids):
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids, source=ids) if model.two_stacks else model(ids)
    logits = logits[0] if isinstance(logits, tuple) else logits
    logits.float().log_softmax(-1)[..., 0].sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_gradients_are_near_those_in_bf16(words):
    """E4M3 has 3 bits after the point, so that one product is wrong by a few percent."""
    model, ids = made(words), torch.randint(64, (2, 13))
    names, expected = list(model.state_dict()), gradients(model, ids)
    assert float8.use_float8(model, emulate=True)
    assert list(model.state_dict()) == names
    found = gradients(model, ids)
    assert not torch.equal(found, expected)
    assert torch.nn.functional.cosine_similarity(found, expected, 0) > 0.98


def test_which_maps():
    """Not embeddings, the head, routers, and maps with a size that is no multiple of 16."""
    model = made(["ffn=moe", "ffn.experts=4", "attn.gate=head"])
    linear = {name for name, module in model.named_modules() if type(module) is nn.Linear}
    chosen = set(float8.use_float8(model, emulate=True))
    assert linear - chosen == {f"decoder.{i}.attn.gate.input" for i in (0, 1)}
    assert not any("router" in name or "head" in name for name in chosen)
    assert {f"decoder.0.attn.{name}" for name in "qkvo"} <= chosen


def test_layers_share_one_graph():
    model, counter = made(["preset=llama"]), CompileCounterWithBackend("eager")
    torch._dynamo.reset()
    float8.use_float8(model, emulate=True)
    compile_blocks(model, fullgraph=True, backend=counter)
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.randint(64, (2, 16)))
    assert counter.frame_count == 1


def test_a_device_without_8_bits_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "_available", lambda accelerator: ("cuda", 1))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    faults = [str(fault) for fault in machine._float8_faults({"precision": "fp8-mixed"})]
    assert len(faults) == 1 and "compute capability 8.9 or above" in faults[0]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert not [*machine._float8_faults({"precision": "fp8-mixed"})]
