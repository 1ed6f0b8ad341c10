"""Adapters of linear maps, lora.rank."""

from functools import partial

import pytest
import torch

from tests.laws.rows import each_choice
from xformer_kit import ConfigError, build, compose
from xformer_kit.generate import generate
from xformer_kit.laws.tiny_composition import Composition, tiny_config
from xformer_kit.laws.variants import config_of, row_label
from xformer_kit.model.lora import Adapter, LoRALinear, add_adapters, linear_maps, merge

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
        if isinstance(module, Adapter):
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


def adapt_all(model):
    """Adds an adapter to each linear map, without a merge."""
    add_adapters(model, {"rank": 2, "alpha": 4, "dropout": 0.0, "of": ["*"]}, seed=0)
    return model.double().eval()


def check_adapters(config):
    """Adapters of all linear maps do not change the outputs at the start, all of them affect the
    outputs, and the merged model has the same ones, also with a cache.
    """
    composition = Composition(config, "lora")
    base, model = composition.trainable_model(), composition.trainable_model()
    count = len({id(getattr(parent, name)) for parent, name, _ in linear_maps(base)})
    adapt_all(model)
    assert sum(isinstance(module, Adapter) for module in model.modules()) == count
    before = composition.all_logits(base).detach()
    torch.testing.assert_close(composition.all_logits(model), before, rtol=1e-12, atol=1e-12)
    train_adapters(model)
    outputs = composition.all_logits(model)
    if not count:
        return
    outputs.square().sum().backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and not p.grad.any()]
    assert not without
    close = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-8)
    steps = cached(composition, model)
    merged = merge(model)
    assert merged.state_dict().keys() == base.state_dict().keys()
    close(composition.all_logits(merged), outputs)
    close(cached(composition, merged), steps)


@torch.no_grad()
def cached(composition, model):
    """Logits of a text that is read token by token; none where generation has no cache."""
    if composition.sees_future or "cache" in composition.broken_laws:
        return []
    cache = composition.empty_cache(model)
    ids = composition.ids[:, :4].split(1, -1)
    return [composition.logits(model, each, cache=cache) for each in ids]


@pytest.mark.parametrize(
    "changes",
    [
        {"ffn": "moe"},
        {"position": "fire"},
        {"position": "transformer_xl"},
        {"attn": {"name": "latent", "kv_rank": 4}},
        {"model": "encoder_decoder", "share_embeddings": True},
        {"layers": 3, "unique_layers": 2},
        {"extra": {"future_tokens": {}}},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_all_linear_maps_have_adapters_that_take_effect(changes):
    check_adapters(tiny_config(**changes))


@pytest.mark.extended
@pytest.mark.parametrize("row", sorted(each_choice()), ids=row_label)
def test_all_linear_maps_of_all_components_have_adapters_that_take_effect(row):
    check_adapters(config_of(row))


def test_a_linear_map_that_is_read_without_a_call_has_its_adapter():
    """As position fire reads its up and down."""
    map_ = LoRALinear(torch.nn.Linear(5, 7), 3, 6.0, 0.0)
    torch.nn.init.normal_(map_.lora_b)
    torch.nn.init.normal_(map_.lora_a)
    x = torch.randn(4, 5)
    torch.testing.assert_close(torch.nn.functional.linear(x, map_.weight, map_.bias), map_(x))
    assert not torch.equal(map_.weight, map_.state_dict()["weight"])


@torch.no_grad()
def test_a_map_adds_alpha_over_rank_times_b_a_of_the_input_with_dropout():
    map_ = LoRALinear(torch.nn.Linear(8, 8), 8, 4.0, 0.5)
    torch.nn.init.eye_(map_.lora_a)
    torch.nn.init.eye_(map_.lora_b)
    x, base = torch.ones(50, 8), torch.nn.functional.linear
    added = map_(x) - base(x, map_.state_dict()["weight"], map_.bias)
    assert sorted(added.round(decimals=4).unique().tolist()) == [0.0, 1.0]  # 0.5 / (1 - 0.5)
    added = map_.eval()(x) - base(x, map_.state_dict()["weight"], map_.bias)
    torch.testing.assert_close(added, torch.full_like(added, 0.5))


@torch.no_grad()
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_adapters_of_experts_have_dropout_in_training(dropout):
    words = ["ffn=moe", "lora.rank=2", "lora.of=[up]", f"lora.dropout={dropout}"]
    model = build(compose([*SIZE, *words]), vocab_size=20)
    train_adapters(model)
    assert torch.equal(model(IDS), model(IDS)) == (dropout == 0)
    assert torch.equal(model.eval()(IDS), model(IDS))


def test_initial_adapters_depend_on_the_seed_and_their_names_only():
    few, many = (
        build(compose([*SIZE, "lora.rank=3", "lora.alpha=6", f"lora.of=[{of}]"]), vocab_size=20)
        for of in ("v", "q,v,up")
    )
    own = {name: p for name, p in few.named_parameters() if "lora_" in name}
    others = dict(many.named_parameters())
    for name, parameter in own.items():
        assert torch.equal(parameter, others[name])
    bound = 32**-0.5
    drawn = torch.cat([p.flatten() for name, p in own.items() if name.endswith("lora_a")])
    assert -bound <= drawn.min() < -0.8 * bound and 0.8 * bound < drawn.max() <= bound
    assert {m.scale for m in few.modules() if isinstance(m, Adapter)} == {2.0}


def test_a_map_with_two_parents_has_one_adapter():
    shared = torch.nn.Linear(3, 3)
    parents = [torch.nn.ModuleDict({"q": shared}) for _ in range(2)]
    model = torch.nn.ModuleDict({"decoder": torch.nn.ModuleList(parents)})
    add_adapters(model, {"rank": 2, "alpha": None, "dropout": 0.0, "of": ["q"]}, seed=0)
    assert parents[0]["q"] is parents[1]["q"] and parents[0]["q"].scale == 1
    assert merge(model) is model and type(parents[0]["q"]) is torch.nn.Linear


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


BARE = ["model.decoder.last=[bare]", "model.decoder.variants.bare.layout=[ffn]"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["lora.of=[decoder.*.attn.q]", *BARE], ["decoder.0.attn.q"]),
        (["ffn=moe", "lora.of=[up]"], ["decoder.0.ffn.experts.up"]),
        (["lora.of=[q,down]", *BARE], ["decoder.0.attn.q", "decoder.0.ffn.down"]),
        (["lora.of=[decoder.1.attn.*]"], [f"decoder.1.attn.{name}" for name in "qkvo"]),
    ],
)
def test_words_select_maps_by_name_or_by_path(words, expected):
    model = build(compose([*SIZE, "lora.rank=2", *words]), vocab_size=20)
    maps = [name for name, module in model.named_modules() if isinstance(module, Adapter)]
    assert [name for name in maps if not name.startswith("decoder.1.ffn")] == expected


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["lora.rank=4", "lora.of=[q,w]"],
            "lora.of: no linear map has this name or path; got w. Known: q,",
        ),
        (
            ["lora.rank=4", "lora.of=[decoder.*.atn.q]"],
            "lora.of: no linear map has this name or path; got decoder.*.atn.q. Did you mean"
            " 'decoder.*.attn.q'?",
        ),
        (
            ["lora.rank=4", "model.layers=3", *BARE],
            "lora.of: reaches no linear map of decoder.2; got [q, v]. Add a map of theirs; or,"
            " for adapters only in other layers, name paths, such as 'decoder.*.attn.q'.",
        ),
        (["lora.rank=0"], "lora.rank: must be at least 1; got 0."),
        (["lora.alpha=3"], "lora.alpha: is about adapters, and lora.rank is null; got 3"),
        (["lora.rank=4", "lora.of=[]"], "lora.of: must not be empty; got []."),
        (["lora.rank=4", "model.freeze=[embed]"], "model.freeze: cannot be set with lora.rank"),
    ],
)
def test_a_wrong_value_is_refused(words, answer):
    with pytest.raises(ConfigError) as error:
        compose(words)
    assert str(error.value).startswith(answer)
