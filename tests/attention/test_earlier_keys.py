"""Attentions that use the keys and values of an earlier layer."""

import pytest
from torch.testing import assert_close

from tests.laws_kept import every_law_test
from tests.refusals import refusals
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition

EARLIER = {"attn": {"keys": "earlier"}}
ALTERNATING = {"layers": 4, "decoder": {"pattern": ["base", "a"], "variants": {"a": EARLIER}}}
WINDOW = {"mask": {"name": "sliding_window", "window": 4}}
# Two layers with keys of their own, then two of each mask that use those of their mask.
LOCAL_AND_GLOBAL = {
    "layers": 6,
    "decoder": {
        "pattern": ["local", "base", "local_earlier", "earlier", "local_earlier", "earlier"],
        "variants": {"local": WINDOW, "local_earlier": WINDOW | EARLIER, "earlier": EARLIER},
    },
}


@pytest.mark.parametrize(
    ("changes", "sources"),
    [(ALTERNATING, {1: 0, 3: 2}), (LOCAL_AND_GLOBAL, {2: 0, 3: 1, 4: 0, 5: 1})],
    ids=["alternating", "local and global"],
)
def test_keys_and_values_are_those_of_the_last_layer_of_its_own(changes, sources):
    """The model equals one with keys in all layers in which hooks replace the projections of keys
    and values by those of the earlier layer; gradients too.
    """
    case = Composition(tiny_config(attn={"name": "multi_head", "kv_heads": 2}, **changes), "")
    variants = case.config["model"]["decoder"]["variants"]
    own = {name: {k: v for k, v in node.items() if k != "attn"} for name, node in variants.items()}
    decoder = case.config["model"]["decoder"] | {"variants": own}
    plain = Composition(
        case.config | {"model": case.config["model"] | {"decoder": decoder}}, ""
    ).model()
    model, found = case.model(), {}
    plain.load_state_dict(model.state_dict(), strict=False)
    for depth, block in enumerate(plain.decoder.blocks):
        for name in "kv":
            source = sources.get(depth, depth)

            def replaced(_, x, y, key=(source, name), is_own=source == depth):
                return found.setdefault(key, y) if is_own else found[key]

            block.attn.get_submodule(name).register_forward_hook(replaced)
    got, expected = case.hidden(model), case.hidden(plain)
    assert_close(got, expected)
    for output in (got, expected):
        output.square().sum().backward()
    grads = {name: p.grad for name, p in plain.named_parameters()}
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad, grads[name])


LAYERS = {"layers": 3, "decoder": {"pattern": ["base", "a", "a"], "variants": {"a": EARLIER}}}
CROSS = {"variants": {"a": EARLIER | {"cross": {"keys": "earlier"}}}}


test_every_law_is_kept = every_law_test(
    {
        "decoder": LAYERS,
        "local and global": LOCAL_AND_GLOBAL,
        "encoder-decoder": LAYERS
        | {"model": "encoder_decoder", "decoder": LAYERS["decoder"] | CROSS, "position": "t5"},
        "norms": LAYERS
        | {
            "attn": {"name": "multi_head", "qk_norm": "key", "v_norm": "none", "gate": "head"},
            "placement": "sandwich",
            "position": "alibi",
            "ffn": "moe",
            "unique_layers": 3,
        },
    }
)


def test_a_layer_without_keys_has_no_cache():
    cache = Composition(tiny_config(**ALTERNATING), "").model().cache(2, 9)
    assert [list(caches) for caches in cache.caches] == [["attn"], [], ["attn"], []]


PATTERN = "model.decoder.pattern=[base,a] model.decoder.variants.a.attn.keys=earlier"
NONE = (
    "'earlier': no layer before layer {} has keys of its own and the same mask, position and"
    " kernel. Put one before it, or leave it 'own'."
)
AT = "model.decoder.variants.a.attn"

test_refused = refusals(
    {
        "attn.keys=earlier": f"attn.keys: {NONE.format(0)}",
        f"{PATTERN} model.decoder.pattern=[a,base]": f"{AT}.keys: {NONE.format(0)}",
        f"{PATTERN} model.decoder.variants.a.mask.name=sliding_window": (
            f"{AT}.keys: {NONE.format(1)}"
        ),
        f"{PATTERN} {AT}.kv_heads=1": (
            f"{AT}.keys: 'earlier': the keys of layer 0 have other kv_heads, head_dim and"
            " v_head_dim; got (1, 16, 16) and (8, 16, 16). Set the same, or leave it 'own'."
        ),
        f"{PATTERN} {AT}.v_norm=head": (
            f"{AT}.v_norm: normalises values, and with keys=earlier they are those of another"
            " layer; got head. Leave it out."
        ),
        f"{PATTERN} attn.score=selective": (
            f"{AT}.score: 'selective' keeps a cache of its own keys, and keys=earlier has none."
            " Choose attn.score=softmax there."
        ),
    }
)
