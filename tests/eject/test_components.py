"""The ejected file of each component equals its model bit for bit, or it is refused by name."""

import pytest

from tests.eject.compared import pair, unequal
from xformer_kit import ConfigError
from xformer_kit.eject import eject
from xformer_kit.laws.tiny_composition import faults, tiny_config
from xformer_kit.laws.variants import variants
from xformer_kit.plan import KINDS

KINDS_OF_BLOCK = ("attn", "mask", "position", "norm", "placement", "ffn")
STACKS = ("decoder", "encoder", "encoder_decoder")
ROWS = [
    pytest.param(kind, name, variant, id=f"{kind}={name}-{i}")
    for kind in KINDS_OF_BLOCK
    for name in KINDS[kind]
    if ".zoo." not in KINDS[kind][name].__module__
    for i, variant in enumerate(variants(kind, name))
]
WINDOW = {"name": "sliding_window", "window": 3}
# Options that no variant of the laws has.
OPTIONS = [
    ("attn", {"name": "multi_head", "score": "sigmoid", "clip": 1.5}),
    ("attn", {"name": "multi_head", "score": {"name": "sigmoid", "bias": -1.5}}),
    ("attn", {"name": "multi_head", "score": {"name": "softmax", "plus_one": True}}),
    ("attn", {"name": "multi_head", "gate": {"name": "head", "bias": 0.5, "activation": "silu"}}),
    ("attn", {"name": "multi_head", "gate": {"name": "projected", "of": "both", "rank": 4}}),
    ("attn", {"name": "multi_head", "gate": {"name": "element", "of": "output"}}),
    ("attn", {"name": "multi_head", "qk_norm": {"name": "l2", "groups": 2}}),
    ("attn", {"name": "multi_head", "qk_norm": {"name": "each_head", "groups": 3}}),
    ("attn", {"name": "multi_head", "qk_norm": {"name": "projection", "groups": 2}}),
    ("mask", {"name": "per_head", "of": [WINDOW, "causal"]}),
    ("mask", {"name": "chunked", "chunk": 4}),
    ("mask", {"name": "any_of", "of": [WINDOW, {"name": "global_tokens", "count": 2}]}),
    ("norm", {"name": "dyt"}),
    ("ffn", {"name": "mlp", "scales": True}),
    ("ffn", {"name": "glu", "soft_clamp": [4.0, 25.0]}),
    ("ffn", {"name": "moe", "expert": {"name": "mlp", "scales": True, "inner_norm": True}}),
]
ROWS += [pytest.param(kind, n["name"], n, id=f"{kind}-{i}") for i, (kind, n) in enumerate(OPTIONS)]


@pytest.mark.extended
@pytest.mark.parametrize(("kind", "name", "variant"), ROWS)
def test_logits_and_gradients(kind, name, variant):
    for config in configs(kind, name, variant):
        if refusal(config) is None:
            assert unequal(*pair(config, 13)[:2]) == []


def configs(kind, name, variant):
    """Yields the configs of a component in the stacks that accept it."""
    node = {"name": name, **variant} | ({"width": 32} if name == "moe" else {})
    for stack in STACKS:
        config = tiny_config(stack, **{kind: node})
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
    ("attn", "differential"),
    ("attn", "dot"),
    ("attn", "linear"),
    ("attn.kv_heads", "3"),  # of position=disentangled
    ("attn.score", "entmax"),
    ("attn.score", "residual"),
    ("attn.score", "selective"),
    ("attn.score", "talking_heads"),
    ("ffn.router", "round_robin"),
    ("ffn.router.capacity", "0.8"),
    ("mask", "prefix"),
    ("position", "none"),  # of attn=latent as cross attention
    ("position", "rotary"),  # of attn=gated_delta
    ("position", "shaw"),
    ("position", "transformer_xl"),
}


def test_what_is_refused():
    refusals = {refusal(config) for row in ROWS for config in configs(*row.values)}
    assert refusals - {None} == REFUSED
