"""The contract components keep the laws that every registered component keeps. Those about
compilation take as long again, and test_compiling.py is about them.
"""

import pytest

from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.registry import SLOW

COMPONENTS = {
    "latent": {"attn": {"name": "test_latent", "heads": 6}},
    "first_values": {"attn": {"name": "test_first_values", "heads": 6}},
    "linear": {"attn": {"name": "test_linear", "heads": 6}, "position": "learned"},
    "t5": {"position": "test_t5"},
    "disentangled": {"position": "test_disentangled"},
    "residual": {"placement": "test_residual"},
    "router": {"ffn": "test_router"},
}
PLAIN = {"cross": {"name": "multi_head"}}  # for attentions that cannot attend to another stack
TWO = {
    "latent": {},
    "first_values": {"decoder": PLAIN},
    "linear": {"decoder": PLAIN, "encoder": {"mask": {"name": "causal"}}},
    "t5": {"decoder": {"cross": {"position": "test_t5"}}},
    "disentangled": {"decoder": {"cross": {"position": "test_disentangled"}}},
    "residual": {},
    "router": {},
}
# Laws that a component does not claim; it keeps all others.
ALWAYS = {"cache with a prefix", "symmetry"}  # there are a causal mask and a position
LAWS_OF_A_SOURCE = {"source", "source padding", "source once", "source order"}
SILENT = {
    "linear": {
        "documents",
        "documents with padding",
        "cache with documents",
        "shift",
        "nothing",
        "kernels",
        "kernels in bf16",
        "device with documents",
    },
    "disentangled": {"kernels", "kernels in bf16"},
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", COMPONENTS)
def test_every_law_is_kept_or_named(name):
    config = tiny_config(**COMPONENTS[name])
    reasons = {law: keeps(config) for law, keeps in LAWS.items() if law not in SLOW}
    assert {law for law, reason in reasons.items() if reason} == SILENT.get(
        name, set()
    ) | ALWAYS | LAWS_OF_A_SOURCE
    if name == "linear":
        assert "a sum over the past does not tell documents apart" in reasons["documents"]


@pytest.mark.extended
@pytest.mark.parametrize("name", COMPONENTS)
def test_every_law_is_kept_or_named_in_two_stacks(name):
    config = tiny_config("encoder_decoder", **COMPONENTS[name], **TWO[name])
    reasons = {law: keeps(config) for law, keeps in LAWS.items() if law not in SLOW}
    silent = SILENT.get(name, set()) | ALWAYS | {"source order"}
    assert {law for law, reason in reasons.items() if reason} == silent
