"""The ejected file of each component equals its model bit for bit, or it is refused by name."""

import pytest

from tests.eject.compared import pair, unequal
from xformer_kit import ConfigError
from xformer_kit.eject import eject
from xformer_kit.extra import EXTRAS
from xformer_kit.laws.tiny_composition import faults, tiny_config
from xformer_kit.laws.variants import variants
from xformer_kit.plan import KINDS

KINDS_OF_BLOCK = ("attn", "mask", "position", "norm", "placement", "ffn")
STACKS = ("decoder", "encoder", "encoder_decoder")
VARIANTS = [
    ({kind: {"name": name, **variant}}, f"{kind}={name}-{i}")
    for kind in KINDS_OF_BLOCK
    for name in KINDS[kind]
    if ".zoo." not in KINDS[kind][name].__module__
    for i, variant in enumerate(variants(kind, name))
]
WINDOW = {"name": "sliding_window", "window": 3}
LATE = {"attn": {"keys": "earlier"}}
# Options that no variant of the laws has: of multi-head attention, of stacks, and others.
HEADS = [
    {"score": "sigmoid", "clip": 1.5},
    {"score": {"name": "sigmoid", "bias": -1.5}},
    {"score": {"name": "softmax", "plus_one": True}},
    {"gate": {"name": "head", "bias": 0.5, "activation": "silu"}},
    {"gate": {"name": "projected", "of": "both", "rank": 4}},
    {"gate": {"name": "element", "of": "output"}},
    {"qk_norm": {"name": "l2", "groups": 2}},
    {"qk_norm": {"name": "each_head", "groups": 3}},
    {"qk_norm": {"name": "projection", "groups": 2}},
]
LAYERS = [
    {"layers": 4, "pattern": ["base", "late", "late"], "variants": {"late": LATE}},
    {
        "layers": 3,
        "pattern": ["base", "late"],
        "variants": {"late": {"attn": {"scale": "by_layer"}}},
    },
    {"layers": 5, "pattern": ["base", "local"], "variants": {"local": {"mask": WINDOW}}},
]
EXTRAS_OF_FIVE = [
    {name: variant}
    for name, component in EXTRAS.items()
    if ".zoo." not in component.__module__
    for variant in getattr(component, "variants", [{}])
]
OPTIONS = [
    *({"attn": {"name": "multi_head", **node}} for node in HEADS),
    *({"decoder": layers, "norm": "layer"} for layers in LAYERS),
    *({"extra": extra, "layers": 5} for extra in EXTRAS_OF_FIVE),
    {"extra": {"value_residual": {"mix": "learned"}, "unet": {}}, "decoder": LAYERS[2]},
    {"attn": {"name": "mean"}, "position": "none"},
    {"attn": {"name": "mean"}, "position": "alibi"},
    {"attn": {"name": "differential", "kv_heads": 2, "weight": False}, "position": "t5"},
    {"attn": {"name": "differential"}, "position": "shaw"},
    {"attn": {"name": "latent", "rope_head_dim": 0}, "position": "none"},
    {"attn": {"name": "linear"}, "position": "none"},
    {"attn": {"name": "linear", "feature_map": "taylor"}},
    {"attn": {"name": "linear", "feature_map": "softmax"}, "mask": "causal"},
    {"attn": {"name": "linear", "feature_map": "identity", "normalise": False}},
    {"attn": {"name": "gated_delta"}, "position": "none"},
    {"mask": {"name": "per_head", "of": [WINDOW, "causal"]}},
    {"mask": {"name": "chunked", "chunk": 4}},
    {"mask": {"name": "any_of", "of": [WINDOW, {"name": "global_tokens", "count": 2}]}},
    {"norm": {"name": "dyt"}},
    {"position": {"name": "shaw", "per_layer": False}},
    {"position": {"name": "transformer_xl", "per_layer": False}},
    {"ffn": {"name": "mlp", "scales": True}},
    {"ffn": {"name": "glu", "soft_clamp": [4.0, 25.0]}},
    {"ffn": {"name": "moe", "expert": {"name": "mlp", "scales": True, "inner_norm": True}}},
]
ROWS = [
    *(pytest.param(changes, id=text) for changes, text in VARIANTS),
    *(pytest.param(changes, id=f"options-{i}") for i, changes in enumerate(OPTIONS)),
]


@pytest.mark.extended
@pytest.mark.parametrize("changes", ROWS)
def test_logits_and_gradients(changes):
    for config in configs(changes):
        if refusal(config) is None:
            assert unequal(*pair(config, 13)[:2]) == []


def configs(changes):
    """Yields the configs with these components in the stacks that accept them."""
    for stack in ("decoder",) if "decoder" in changes else STACKS:
        nodes = dict(changes)
        if "ffn" in nodes and nodes["ffn"]["name"] == "moe":
            nodes["ffn"] = nodes["ffn"] | {"width": 32}
        config = tiny_config(stack, **nodes)
        if not faults(config):
            yield config


def refusal(config):
    """The option, with its value, that has no template; None if there is none."""
    try:
        eject(config, 13)
    except ConfigError as error:
        path, found, value = str(error).partition(": has no template")
        if not found:
            raise
        return path, value.rpartition("got ")[2].strip("'.")
    return None


# What has no template, of the components and variants that are compared.
REFUSED = {
    ("extra.deep_embed", "deep_embed"),
    ("extra.embedding_noise", "embedding_noise"),
    ("extra.future_tokens", "future_tokens"),
    ("extra.stochastic_depth", "stochastic_depth"),
    ("extra.unit_weights", "unit_weights"),
    ("attn.score", "entmax"),
    ("attn.score", "residual"),
    ("attn.score", "selective"),
    ("attn.score", "talking_heads"),
    ("ffn.router", "round_robin"),
    ("ffn.router.capacity", "0.8"),
    ("position", "shaw"),  # with attn=differential
}


@pytest.mark.extended
def test_what_is_refused():
    refusals = {refusal(config) for row in ROWS for config in configs(*row.values)}
    assert refusals - {None} == REFUSED
