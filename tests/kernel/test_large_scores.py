"""Half precision where q k^T overflows fp16 before it is scaled, and not after: every attention is
close to float64 with every kernel.
"""

from copy import deepcopy

import pytest
import torch
from torch import nn

from xformer_kit.attention import ATTENTIONS, SCORES
from xformer_kit.config import check
from xformer_kit.kernel import KERNELS
from xformer_kit.laws import tiny_config
from xformer_kit.laws.numerics import train_step
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import Tokens, scaled_to_unit

LARGER = 2.0**7  # factor of queries and of keys; that of products is removed from the scale
# Features exp(w q - |q|^2 / 2) have no scale, and no bound after a rotation.
FACTORS, POSITION = {"performer": 8.0}, {"performer": "none", "short_conv": "none"}
OPTIONS = {"laser": {"cap": 8.0}}  # its bound in fp16


def enlarge(model, larger=LARGER):
    """Multiplies queries and keys, and divides the factor on their products."""
    for attn in model.modules():
        if isinstance(getattr(attn, "q", None), nn.Linear):
            for parameter in (*attn.q.parameters(), *attn.k.parameters()):
                parameter.data *= larger
            name = "factor" if "factor" in vars(attn) else "scale"
            if isinstance(getattr(attn, name, None), float):
                setattr(attn, name, getattr(attn, name) / larger**2)


def errors(config):
    """The largest error of the logits, and of all gradients, relative to the largest of each."""
    composition = Composition(config, "")
    model = composition.model(torch.float64)
    enlarge(model, FACTORS.get(config["attn"]["name"], LARGER))
    model = model.half()
    batch = Tokens(ids=composition.ids), None
    with torch.set_grad_enabled(config["kernel"]["name"] != "flex"):
        exact, half = train_step(deepcopy(model).double(), batch), train_step(model, batch)
    assert half.keys() == exact.keys() and all(value.isfinite().all() for value in half.values())
    gradients = [name for name in exact if name != "logits"]
    largest = max((exact[name].abs().max() for name in gradients), default=0)
    yield (half["logits"] - exact["logits"]).abs().max() / exact["logits"].abs().max()
    yield from ((half[name] - exact[name]).abs().max() / largest for name in gradients)


def assert_close(model="decoder", **changes):
    """Checks all kernels that can compute the composition, and returns how many."""
    mask = {"decoder": "causal", "encoder": "full"}[model]
    configs = [
        tiny_config(model, layers=1, mask=mask, kernel=kernel, **changes)
        for kernel in KERNELS
        if kernel != "auto"
    ]
    accepted = [config for config in configs if not check(config, data=False, task=False)]
    for config in accepted:
        assert max(errors(config)) < 0.1, config["kernel"]
    return len(accepted)


@pytest.mark.parametrize("attn", ATTENTIONS)
def test_every_attention_with_every_kernel(attn):
    node = {"name": attn, **OPTIONS.get(attn, {})}
    found = assert_close(attn=node, position=POSITION.get(attn, "rotary"))
    assert found or assert_close("encoder", attn=node, position="none")


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("attn", ["multi_head", pytest.param("latent", marks=pytest.mark.extended)])
def test_every_position(attn, position):
    assert_close(attn=attn, position=position)


@pytest.mark.parametrize("score", SCORES)
def test_every_score(score):
    assert_close(attn={"name": "multi_head", "score": {"name": score}}, position="shaw")


def test_a_unit_vector_of_zeros_and_of_the_largest_numbers():
    x = torch.tensor([[0.0, 0.0, 0.0, 0.0], [65504.0] * 4, [6e-8, 0.0, 0.0, 0.0]]).half()
    expected = torch.tensor([[0.0] * 4, [0.5] * 4, [1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(scaled_to_unit(x), expected)
