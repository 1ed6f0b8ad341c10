"""Layers that share a block, embeddings narrower than the model, and ALBERT, which has both."""

import re

import pytest
import torch
from torch.testing import assert_close

from xformer_kit import compose
from xformer_kit.config.faults.size import parameters
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.generate import generate
from xformer_kit.inspect import flops
from xformer_kit.inspect.tree import tree
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import VOCAB, Composition
from xformer_kit.model.build import build_model
from xformer_kit.plan import shared_by, stacks
from xformer_kit.tensors.tokens import Tokens

LOOPED = {"layers": 6, "unique_layers": 2}


@pytest.mark.parametrize(
    ("layers", "unique", "sharing", "calls"),
    [
        (6, 6, "sequence", [0, 1, 2, 3, 4, 5]),
        (6, 3, "sequence", [0, 0, 1, 1, 2, 2]),
        (6, 1, "sequence", [0] * 6),
        (5, 2, "sequence", [0, 0, 0, 1, 1]),
        (6, 3, "cycle", [0, 1, 2, 0, 1, 2]),
        (6, 3, "cycle_rev", [0, 1, 2, 2, 1, 0]),
        (6, 2, "cycle_rev", [0, 1, 0, 1, 1, 0]),
        (5, 3, "cycle_rev", [0, 1, 2, 2, 1]),
        (3, 3, "cycle_rev", [0, 1, 2]),
    ],
)
def test_which_block_a_layer_calls(layers, unique, sharing, calls):
    assert list(shared_by(layers, unique, sharing)) == calls


@pytest.mark.parametrize("sharing", ["sequence", "cycle", "cycle_rev"])
@torch.no_grad()
def test_shared_layers_equal_layers_with_the_same_weights(sharing):
    shared, whole = (
        Composition(tiny_config(**LOOPED, sharing=sharing), ""),
        Composition(tiny_config(layers=6), ""),
    )
    model, other = shared.model(), whole.model()
    state = model.state_dict()
    for name in other.state_dict():
        stack, layer, *rest = name.split(".")
        if layer.isdigit():
            state[name] = model.state_dict()[
                ".".join([stack, str(model.decoder.block_index[int(layer)]), *rest])
            ]
    other.load_state_dict(state)
    assert_close(shared.logits(model, shared.ids), whole.logits(other, whole.ids))
    assert len(model.decoder.blocks) == 2
    assert [context.depth for context in depths(model, shared)] == list(range(6))


def depths(model, case):
    """The contexts of the attentions, in the order of their calls."""
    seen = []
    for block in model.decoder.blocks:
        block.attn.register_forward_pre_hook(
            lambda _, args, given: seen.append(given["context"]), with_kwargs=True
        )
    case.logits(model, case.ids)
    return seen


def test_every_layer_has_its_own_cache():
    case = Composition(tiny_config(**LOOPED), "")
    model = case.model()
    past = case.empty_cache(model)
    assert len(past.caches) == 6
    assert len({id(cache) for caches in past.caches for cache in caches.values()}) == 6
    with torch.no_grad():
        got = torch.cat(
            [case.logits(model, case.ids[:, i : i + 1], cache=past) for i in range(5)], 1
        )
        assert_close(got, case.logits(model, case.ids[:, :5]))
    assert (
        generate(model, case.ids, max_new_tokens=3, temperature=0.0).shape[1]
        == case.ids.shape[1] + 3
    )


def test_the_initial_weights_of_a_shared_block_count_its_layers():
    one, many = (
        build_model(tiny_config(layers=6, unique_layers=n), VOCAB).state_dict() for n in (None, 2)
    )
    name = "decoder.1.attn.o.weight"
    assert_close(one[name], many[name])  # divided by sqrt(12) in both


def test_reports_of_a_shared_block_are_summed_over_its_layers():
    @FFNS.register("reports")
    class Reports(MLP):
        """An mlp that says how often it was called."""

        def forward(self, x, tokens):
            return super().forward(x)[0], {"calls": torch.ones(()), "loss": x.mean()}

        def after_step(self, report):
            self.told = report["calls"].item()

    try:
        case = Composition(tiny_config(ffn="reports", layers=5, unique_layers=2), "")
        model = case.model()
        _, report = model.hidden(Tokens(ids=case.ids))
        model.after_step({name: value for name, value in report.items() if name != "loss"})
        assert [block.ffn.told for block in model.decoder.blocks] == [3, 2]
    finally:
        FFNS.forget(__name__)


def test_the_tree_counts_weights_once_and_flops_of_every_call():
    config = tiny_config(**LOOPED)
    with torch.device("meta"):
        model, whole = build_model(config, VOCAB), build_model(tiny_config(layers=6), VOCAB)
    counted = flops.count(model, 8)
    assert counted.forward == flops.count(whole, 8).forward
    root = tree(model, stacks(config), counted.modules)
    assert root.parameters == sum(p.numel() for p in model.parameters())
    decoder = next(child for child in root.children if child.name == "decoder")
    assert decoder.description == "6 layers, 2 with weights of their own"
    (layers,) = (child for child in decoder.children if child.name[0].isdigit())
    assert (layers.name, layers.times, layers.description) == ("0-5", 2, "called 3 times")
    assert layers.flops * layers.times == decoder.flops


def test_the_size_of_very_many_layers_that_share_is_that_of_their_blocks():
    few, many = (tiny_config(layers=layers, unique_layers=2) for layers in (4, 4000))
    assert (
        parameters(many)
        == parameters(few)
        == sum(p.numel() for p in build_model(few, 1).parameters())
    )


FAULTS = {
    "model.layers=6 model.unique_layers=9": (
        "model.unique_layers: must be at most the decoder's layers; got 9 and 6. null is all of"
        " them."
    ),
    "model.decoder.unique_layers=0": (
        "model.decoder.unique_layers: must be at least 1 block; got 0."
    ),
    "model.sharing=cycle": (
        "model.sharing: sets which layers share a block, and none do; got 'cycle'. Set"
        " model.unique_layers, or leave it 'sequence'."
    ),
    (
        "model.layers=6 model.unique_layers=3 model.decoder.pattern=[base,x] "
        "model.decoder.variants.x.attn.heads=4"
    ): (
        "model.decoder.pattern: layers 0 and 1 share a block and must be of one variant; got 'base'"
        " and 'x'. Try model.sharing=cycle with a pattern as long as model.unique_layers, or"
        " model.unique_layers=null."
    ),
    "model.embed_map_first=true": (
        "model.embed_map_first: is about the map from model.embed_dim to model.dim, and they are"
        " the same; got true. Set model.embed_dim."
    ),
    "model.embed_dim=0": "model.embed_dim: must be at least 1; got 0.",
}


@pytest.mark.parametrize("words", FAULTS)
def test_invalid_sharing_is_reported(words):
    with pytest.raises(ValueError, match=f"^{re.escape(FAULTS[words])}$"):
        compose(words.split())


def test_a_pattern_as_long_as_the_blocks_is_shared_by_a_cycle():
    local = {"pattern": ["base", "x"], "variants": {"x": {"attn": {"heads": 3}}}}
    config = tiny_config(layers=6, unique_layers=2, sharing="cycle", decoder=local)
    assert not faults(config)
    assert [block.attn.q.out_features for block in build_model(config, VOCAB).decoder.blocks] == [
        60,
        30,
    ]


def test_positions_can_be_added_after_the_map_of_narrow_embeddings():
    narrow = {"embed_dim": 10, "embed_map_first": True, "embed_norm": True}
    case = Composition(tiny_config(**narrow, position="learned"), "")
    model = case.model()
    stack = model.decoder
    assert stack.project.bias is None
    assert (stack.position["base"].weight.shape[1], stack.embed_norm.weight.shape[0]) == (36, 36)
    seen = []
    stack.embed_norm.register_forward_hook(lambda _, args, out: seen.append(args[0]))
    case.hidden(model, case.ids)
    place = stack.position["base"].weight[: case.ids.shape[1]]
    assert_close(seen[0], model.embed.weight[case.ids] @ stack.project.weight.T + place)


@pytest.mark.parametrize("tied", [True, False])
def test_narrow_embeddings_are_projected_to_the_model(tied):
    case = Composition(
        tiny_config(embed_dim=10, tie_embeddings=tied, embed_scale="sqrt_dim", position="learned"),
        "",
    )
    model = case.model()
    assert (model.embed.weight.shape[1], model.decoder.position["base"].weight.shape[1]) == (10, 10)
    assert model.head.weight.shape[1] == (10 if tied else 36)
    seen = []
    model.decoder.project.register_forward_hook(lambda _, args, out: seen.append((args[0], out)))
    hidden = case.hidden(model, case.ids)
    place = model.decoder.position["base"].weight[: case.ids.shape[1]]
    assert_close(seen[0][0], model.embed.weight[case.ids] * 10**0.5 + place)
    narrow = model.head.transform(hidden) if tied else hidden
    assert_close(model.head(hidden), narrow @ model.head.weight[:VOCAB].T)


@pytest.mark.parametrize("groups", [1, 2])
@torch.no_grad()
def test_albert(groups):
    transformers = pytest.importorskip("transformers")
    dim, layers, width, heads = 36, 4, 52, 6
    config = transformers.AlbertConfig(
        vocab_size=VOCAB,
        embedding_size=10,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_hidden_groups=groups,
        num_attention_heads=heads,
        intermediate_size=width,
        max_position_embeddings=29,
        type_vocab_size=2,
        hidden_act="gelu",
        attn_implementation="eager",
    )
    theirs = transformers.AlbertForMaskedLM(config).double().eval()
    draw = torch.Generator().manual_seed(3)
    for parameter in theirs.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) * 0.4)
    ours = tiny_config(
        "encoder",
        layers=layers,
        unique_layers=groups,
        embed_dim=10,
        token_types=2,
        embed_norm=True,
        head_transform=True,
        head_bias=True,
        vocab_multiple=1,
        position="learned",
        placement="post",
        attn={
            "name": "multi_head",
            "heads": heads,
            "kv_heads": None,
            "head_dim": None,
            "bias": True,
        },
        norm={"name": "layer", "eps": 1e-12},
        ffn={"name": "mlp", "width": width, "activation": "gelu", "bias": True},
    )
    model = build_model(ours, VOCAB).double().eval()
    model.load_state_dict(albert_state(theirs.state_dict(), groups))
    ids = Composition(ours, "").ids
    segment = (ids % 2).long()
    got, expected = model(ids, segment=segment), theirs(ids, token_type_ids=segment).logits
    assert_close(got, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


def albert_state(theirs, groups):
    names = {
        "embed.weight": "albert.embeddings.word_embeddings.weight",
        "token_type.weight": "albert.embeddings.token_type_embeddings.weight",
        "encoder.position.base.weight": "albert.embeddings.position_embeddings.weight",
        "head.bias": "predictions.bias",
    }
    pairs = {
        "encoder.embed_norm": "albert.embeddings.LayerNorm",
        "encoder.project": "albert.encoder.embedding_hidden_mapping_in",
        "head.transform.dense": "predictions.dense",
        "head.transform.norm": "predictions.LayerNorm",
    }
    for i in range(groups):
        block, them = f"encoder.{i}", f"albert.encoder.albert_layer_groups.{i}.albert_layers.0"
        attention = zip("qkvo", ("query", "key", "value", "dense"), strict=True)
        pairs |= {f"{block}.attn.{one}": f"{them}.attention.{other}" for one, other in attention}
        pairs |= {f"{block}.ffn.up": f"{them}.ffn", f"{block}.ffn.down": f"{them}.ffn_output"}
        pairs[f"{block}.placement.attn.norm"] = f"{them}.attention.LayerNorm"
        pairs[f"{block}.placement.ffn.norm"] = f"{them}.full_layer_layer_norm"
    names |= {
        f"{one}.{component}": f"{other}.{component}"
        for one, other in pairs.items()
        for component in ("weight", "bias")
    }
    return {ours: theirs[name] for ours, name in names.items()}
