"""Adapters of linear maps, lora.rank."""

import pytest
import torch

from xformer_kit import ConfigError, build, compose
from xformer_kit.generate import generate
from xformer_kit.model.lora import LoRALinear, merge

SIZE = ["model.dim=32", "model.layers=2", "attn.heads=4", "data.seq_len=16"]
EVERY = ["lora.rank=3", "lora.alpha=6", "lora.of=[q,v,o]"]
IDS = torch.arange(12).view(2, 6)
MODELS = {
    "decoder": ["attn.kv_heads=2"],
    "latent": ["attn=latent"],
    "experts": ["ffn=moe", "ffn.experts=4"],
    "two stacks": ["model=encoder_decoder", "task=seq2seq"],
}


def models(name, *words):
    """The base, and the same with adapters."""
    own = [*SIZE, *MODELS[name], *words]
    of = ["lora.rank=3", "lora.alpha=6", "lora.of=[k,v,o]"] if name == "latent" else EVERY
    return [build(compose(each), vocab_size=20).eval() for each in (own, [*own, *of])]


def logits(model):
    return model(source=IDS, target=IDS) if model.two_stacks else model(IDS)


def train_adapters(model):
    for module in model.modules():
        if isinstance(module, LoRALinear):
            torch.nn.init.normal_(module.lora_b, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_base_at_the_start_and_of_the_merged_model_later(name):
    base, adapted = models(name)
    assert torch.equal(logits(base), logits(adapted))
    assert {n for n, p in adapted.named_parameters() if p.requires_grad} == {
        n for n, _ in adapted.named_parameters() if "lora_" in n
    }
    train_adapters(adapted)
    before = logits(adapted)
    assert (before - logits(base)).abs().max() > 1e-2
    if not adapted.two_stacks:
        options = {"max_new_tokens": 8, "temperature": 0.0}
        cached = generate(adapted, IDS, **options)
    merged = merge(adapted)
    assert merged.state_dict().keys() == base.state_dict().keys()
    torch.testing.assert_close(logits(merged), before, rtol=1e-4, atol=1e-5)
    if not adapted.two_stacks:
        assert torch.equal(generate(merged, IDS, **options), cached)


def test_a_map_is_that_of_peft():
    peft = pytest.importorskip("peft")
    base = torch.nn.Sequential(torch.nn.Linear(5, 7))
    own = LoRALinear(base[0], 3, 6.0, 0.0)
    other = peft.get_peft_model(base, peft.LoraConfig(r=3, lora_alpha=6, target_modules=["0"]))
    layer = other.base_model.model[0]
    torch.nn.init.normal_(own.lora_b)
    torch.nn.init.normal_(own.lora_a)
    layer.lora_A["default"].weight.data.copy_(own.lora_a)
    layer.lora_B["default"].weight.data.copy_(own.lora_b)
    x = torch.randn(4, 5)
    torch.testing.assert_close(own(x), other(x))


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["lora.rank=4", "lora.of=[q,w]"],
            "lora.of: no linear map has this name; got w. Known: q,",
        ),
        (["lora.rank=0"], "lora.rank: must be at least 1; got 0."),
        (["lora.alpha=3"], "lora.alpha: is about adapters, and lora.rank is null; got 3"),
        (["lora.rank=4", "lora.of=[]"], "lora.of: must name linear maps; got []."),
        (["lora.rank=4", "model.freeze=[embed]"], "model.freeze: cannot be set with lora.rank"),
    ],
)
def test_a_wrong_value_is_refused(words, answer):
    with pytest.raises(ConfigError) as error:
        compose(words)
    assert str(error.value).startswith(answer)
