"""Plans of configs: shared components with the differences of stacks, variants and sublayers."""

import itertools

import pytest
import torch
from refusals import refusals, refused

from tests.messages import messages
from xformer_kit import build, compose
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.mask import MASKS
from xformer_kit.plan import layer_order, max_len, merge, stack_plan


def plan(decoder=None, **changes):
    return stack_plan(tiny_config(decoder=decoder or {}, **changes), "decoder")


def words(block):
    return [[sub.name for sub in group] for group in block.groups]


def subs(block):
    return {sub.name: sub for group in block.groups for sub in group}


# The merge rule.


def test_a_difference_without_a_name_changes_options():
    base = {"name": "sliding_window", "window": 8}
    assert merge("mask", base, {"window": 3}) == {"name": "sliding_window", "window": 3}
    assert base["window"] == 8


def test_a_difference_that_names_the_same_component_keeps_its_options():
    base = {"name": "rotary", "theta": 500.0}
    assert merge("position", base, {"name": "rotary"}) == base
    assert merge("position", base, "rotary") == base


def test_a_difference_that_names_another_component_replaces_it():
    base = {
        "name": "mlp",
        "width": 19,
        "expand": None,
        "multiple_of": None,
        "activation": "relu",
        "bias": True,
        "dropout": 0.0,
    }
    merged = merge("ffn", base, {"name": "glu", "bias": True})
    assert merged["name"] == "glu"
    assert (merged["width"], merged["activation"], merged["bias"]) == (None, "silu", True)


def test_heads_carry_over_to_another_attention():
    from xformer_kit.attention import ATTENTIONS, MultiHead

    class Other(MultiHead):
        """Has heads and head_dim, and no kv_heads."""

        def __init__(self, dim: int, *, heads: int = 2, head_dim: int | None = None, knob: int = 1):
            raise NotImplementedError

    ATTENTIONS.register("other")(Other)
    try:
        base = ATTENTIONS.defaults("multi_head") | {
            "heads": 6,
            "kv_heads": 3,
            "head_dim": 10,
            "bias": True,
        }
        assert merge("attn", base, "other") == {
            "name": "other",
            "heads": 6,
            "head_dim": 10,
            "knob": 1,
        }
        assert merge("attn", base, {"name": "other", "heads": 4}) == {
            "name": "other",
            "heads": 4,
            "head_dim": 10,
            "knob": 1,
        }
    finally:
        ATTENTIONS.forget(__name__)


def test_an_empty_difference_changes_nothing():
    base = {"name": "causal"}
    assert merge("mask", base, {}) == merge("mask", base, None) == base


# Stacks.


def test_shared_components_reach_every_layer():
    blocks = plan(attn={"name": "multi_head", "heads": 3}, layers=3).blocks
    assert len(blocks) == 3
    assert all(block.nodes["attn"]["heads"] == 3 for block in blocks)


def test_a_stack_differs_from_the_shared_components():
    block = plan({"mask": {"name": "sliding_window", "window": 4}, "attn": {"heads": 3}}).blocks[0]
    assert block.nodes["mask"] == {"name": "sliding_window", "window": 4, "causal": True}
    assert (block.nodes["attn"]["heads"], block.nodes["attn"]["kv_heads"]) == (3, 3)
    assert block.provenance["mask.window"] == "model.decoder.mask"
    assert block.provenance["attn.heads"] == "model.decoder.attn"


def test_a_variant_differs_from_its_stack():
    local = {"mask": {"window": 3}, "attn": {"bias": True}}
    decoder = {
        "mask": {"name": "sliding_window", "window": 9},
        "pattern": ["base", "local"],
        "variants": {"local": local},
    }
    base, other = plan(decoder).blocks
    assert base.nodes["mask"]["window"] == 9
    assert other.nodes["mask"] == {"name": "sliding_window", "window": 3, "causal": True}
    assert other.nodes["attn"]["bias"]
    assert not base.nodes["attn"]["bias"]
    assert other.provenance["mask.window"] == "model.decoder.variants.local.mask"
    assert (other.variant, other.path) == ("local", "model.decoder.variants.local")


def test_replacing_a_component_resets_the_provenance_of_its_options():
    variants = {"all": {"mask": "causal"}}
    decoder = {
        "mask": {"name": "sliding_window", "window": 9},
        "pattern": ["all"],
        "variants": variants,
    }
    assert plan(decoder).blocks[0].provenance == {"mask.name": "model.decoder.variants.all.mask"}


def test_layers_of_one_variant_share_a_plan():
    blocks = plan(
        {"pattern": ["base", "x"], "variants": {"x": {"attn": {"bias": True}}}}, layers=4
    ).blocks
    assert blocks[0] is blocks[2]
    assert blocks[1] is blocks[3]


# The order of layers.


@pytest.mark.parametrize(
    ("stack", "layers", "order"),
    [
        ({}, 2, "base base"),
        ({"pattern": ["a", "b"]}, 5, "a b a b a"),
        ({"pattern": ["a", "b", "c"]}, 2, "a b"),
        ({"pattern": ["a"], "first": ["x", "y"]}, 4, "x y a a"),
        ({"pattern": ["a"], "last": ["x", "y"]}, 4, "a a x y"),
        ({"pattern": ["a", "b"], "first": ["x"], "last": ["z"]}, 4, "x b a z"),
        ({"first": ["x"], "last": ["z"]}, 1, "z"),
        ({"first": None, "last": None, "pattern": None}, 1, "base"),
    ],
)
def test_order_of_layers(stack, layers, order):
    assert layer_order(stack, layers) == order.split()


def test_a_stack_may_have_its_own_number_of_layers():
    assert len(plan({"layers": 5}, layers=2).blocks) == 5


# Layouts.


def test_the_default_layout():
    assert words(plan().blocks[0]) == [["attn"], ["ffn"]]


def test_an_inner_list_runs_in_parallel():
    assert words(plan({"layout": [["attn", "ffn"]]}).blocks[0]) == [["attn", "ffn"]]


def test_a_second_sublayer_of_a_kind_is_numbered():
    assert words(plan({"layout": ["ffn", "attn", ["ffn", "attn"]]}).blocks[0]) == [
        ["ffn"],
        ["attn"],
        ["ffn_2", "attn_2"],
    ]


def test_a_sublayer_may_differ():
    block = plan(
        {
            "layout": [
                "attn",
                {"attn": {"heads": 3, "mask": {"name": "sliding_window", "window": 2}}},
                {"ffn": {"width": 23}},
            ]
        }
    )
    found = subs(block.blocks[0])
    assert (found["attn"].component["heads"], found["attn_2"].component["heads"]) == (6, 3)
    assert (found["attn"].mask["name"], found["attn_2"].mask) == (
        "causal",
        {"name": "sliding_window", "window": 2, "causal": True},
    )
    assert found["ffn"].component["width"] == 23
    assert "mask" not in found["attn_2"].component


def test_a_variant_may_have_its_own_layout():
    base, bare = plan(
        {"pattern": ["base", "bare"], "variants": {"bare": {"layout": ["ffn"]}}}
    ).blocks
    assert words(base) == [["attn"], ["ffn"]]
    assert words(bare) == [["ffn"]]


def test_nested_masks_replace_as_a_whole():
    tree = {"name": "any_of", "of": [{"name": "causal"}]}
    block = plan({"mask": tree}, mask={"name": "sliding_window", "window": 3}).blocks[0]
    assert block.nodes["mask"] == tree
    assert MASKS.create(block.nodes["mask"]).band() == (float("inf"), 0)


# Sizes, and the config itself.


@pytest.mark.parametrize(
    ("own", "data", "expected"), [(29, 13, 29), (None, 13, 13), (None, None, 1024)]
)
def test_the_longest_sequence(own, data, expected):
    assert (
        max_len({"model": {"max_len": own}, "data": {"seq_len": data} if data else None})
        == expected
    )


@pytest.mark.parametrize("pattern", [*itertools.permutations(["base", "heads", "other"])])
def test_each_attention_has_a_position_of_its_size_and_the_base_is_called_base(pattern):
    variants = {"heads": {"attn": {"heads": 3}}, "other": {"position": "kerple"}}
    stack = plan({"pattern": [*pattern], "variants": variants}, layers=6, position="alibi")
    positions, groups = stack.attention.positions, stack.attention.groups
    for block, group_of in zip(stack.blocks, stack.attention.group_of, strict=True):
        found, attn = positions[groups[group_of["attn"]].position], subs(block)["attn"]
        assert (found.node, found.heads) == (dict(attn.position), attn.context.attn.heads)
    assert len(positions) == 3 and positions["base"].node["name"] == "alibi"


def test_a_plan_does_not_change_the_config():
    decoder = {
        "pattern": ["base", "x"],
        "variants": {"x": {"mask": {"name": "sliding_window", "window": 2}}},
        "attn": {"heads": 3},
    }
    config, same = tiny_config(decoder=decoder), tiny_config(decoder=decoder)
    stack_plan(config, "decoder")
    assert config == same


@pytest.mark.parametrize(
    ("decoder", "sentence"),
    [
        (
            {"pattern": ["base", "lokal"], "variants": {"local": {}}},
            (
                "model.decoder.pattern: no variant is called 'lokal'. Did you mean 'local'? Known:"
                " base, local."
            ),
        ),
        (
            {"first": ["base", "base", "base"]},
            "model.decoder.first: must not be longer than the stack; got 3 and 2 layers.",
        ),
        (
            {"variants": {"local": {"mask": {"name": "sliding_window", "windw": 3}}}},
            (
                "model.decoder.variants.local.mask.windw: mask 'sliding_window' has no option"
                " 'windw'. Did you mean 'window'? It has: window, causal."
            ),
        ),
        (
            {"pattern": ["x"], "variants": {"x": {"position": "learned"}}},
            (
                "model.decoder.variants.x.position: 'learned' is added to the embeddings, which"
                " belong to the whole stack. Set it as position=learned."
            ),
        ),
        (
            {"variants": {"base": {}}},
            (
                "model.decoder.variants.base: 'base' is the stack itself. Give the variant another"
                " name."
            ),
        ),
        (
            {"layout": ["attn", "fnn"]},
            (
                "model.decoder.layout: no sublayer is called 'fnn'. Did you mean 'ffn'? Known:"
                " attn, cross, ffn."
            ),
        ),
        (
            {"layout": ["attn", "cross"]},
            (
                "model.decoder.layout: 'cross' attends to an encoder, and the model has none. Leave"
                " it out."
            ),
        ),
        (
            {"variants": {"x": {"norms": "rms"}}},
            (
                "model.decoder.variants.x.norms: the config has no such key. Did you mean 'norm'? "
                "It has: attn, mask, position, norm, placement, ffn, kernel, layout, cross."
            ),
        ),
    ],
)
def test_a_fault_in_a_stack_is_one_complete_message(decoder, sentence):
    assert messages(faults(tiny_config(decoder=decoder))) == [sentence]


def test_a_sublayer_may_have_its_own_norm():
    """ModernBERT's first layer has none before its attention (Warner et al., 2024,
    arXiv:2412.13663, section 2.1).
    """
    bare = "model.decoder.variants.bare={layout:[{attn:{norm:none}},ffn]}"
    model = build(compose(["model.layers=2", "norm=layer", "model.decoder.first=[bare]", bare]), 17)
    names = [name for name, _ in model.decoder.named_parameters() if name.endswith("norm.0.weight")]
    assert names == [
        f"{place}.norm.0.weight"
        for place in ("0.placement.ffn", "1.placement.attn", "1.placement.ffn")
    ]


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        (
            "[{attn:{norm:laye}},ffn]",
            "layout.attn.norm: no norm is called 'laye'. Did you mean 'layer'?",
        ),
        ("[attn,{ffn:{norm:{eps:-1}}}]", "layout.ffn.norm.eps: must be at least 0; got -1."),
        (
            "[[{attn:{norm:layer}},ffn]]",
            (
                "layout: attn, ffn run in parallel, and the norms of a parallel group are of one"
                " kind. Give"
            ),
        ),
    ],
)
def test_a_norm_of_a_sublayer_is_checked(layout, sentence):
    assert refused([f"model.decoder.layout={layout}"])[0].startswith(f"model.decoder.{sentence}")


@torch.no_grad()
def test_a_macaron_takes_half_steps():
    """x + f(x) / 2, then + attention, then + g(x) / 2 (Macaron-Net: Lu et al., 2019,
    arXiv:1906.02762, section 3.2), each times the model's own multiplier.
    """
    half = {"ffn": {"multiplier": 0.5}}
    case = Composition(
        tiny_config(decoder={"layout": [half, "attn", half]}, layers=1, residual_multiplier=0.4), ""
    )
    model, gave = case.model(), {}
    block = model.stack.blocks[0]
    for name in ("ffn", "attn", "ffn_2"):
        block.get_submodule(name).register_forward_hook(
            lambda module, args, out, name=name: gave.update({name: out})
        )
    block.register_forward_hook(
        lambda module, args, kwargs, out: gave.update(x=args[0], state=out[0]), with_kwargs=True
    )
    case.hidden(model, case.ids)
    expected = gave["x"][0] + 0.2 * gave["ffn"][0] + 0.4 * gave["attn"] + 0.2 * gave["ffn_2"][0]
    torch.testing.assert_close(gave["state"][0], expected)


WRONG_STEPS = {
    "model.decoder.layout=[{ffn:{multiplier:0}},attn]": (
        "model.decoder.layout.ffn.multiplier: must be above 0; got 0. Try 0.5."
    ),
    "model.decoder.layout=[{ffn:{multiplier:half}},attn]": (
        "model.decoder.layout.ffn.multiplier: must be a number; got 'half'."
    ),
    "model=encoder_decoder task=seq2seq data=scan model.decoder.cross={multiplier:0.5}": (
        "model.decoder.cross.multiplier: is of a place in a layout. Set it there."
    ),
}


test_a_wrong_step_is_one_sentence = refusals(WRONG_STEPS)
