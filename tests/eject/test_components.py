"""The ejected file of each component equals its model bit for bit, or it is refused by name."""

import pytest

from tests.eject.compared import pair, unequal
from xformer_kit import ConfigError
from xformer_kit.laws.tiny_composition import faults, tiny_config
from xformer_kit.laws.variants import variants
from xformer_kit.plan import KINDS

KINDS_OF_BLOCK = ("attn", "mask", "position", "norm", "placement", "ffn")
ROWS = [
    pytest.param(kind, name, variant, id=f"{kind}={name}-{i}")
    for kind in KINDS_OF_BLOCK
    for name in KINDS[kind]
    if ".zoo." not in KINDS[kind][name].__module__
    for i, variant in enumerate(variants(kind, name))
]


@pytest.mark.extended
@pytest.mark.parametrize(("kind", "name", "variant"), ROWS)
def test_logits_and_gradients(kind, name, variant):
    for stack in ("decoder", "encoder", "encoder_decoder"):
        node = {"name": name, **variant} | ({"width": 32} if name == "moe" else {})
        config = tiny_config(stack, **{kind: node})
        if faults(config):
            continue
        if (found := pair_or_refusal(config)) is not None:
            assert unequal(*found) == []


def pair_or_refusal(config):
    """The model and that of its file; None for one whose refusal names an option."""
    try:
        return pair(config, 13)[:2]
    except ConfigError as error:
        if "has no template" in str(error):
            return None
        raise
