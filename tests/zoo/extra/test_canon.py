"""Canon layers: the formula, the four places, the laws."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tests.laws_kept import every_law_test
from tests.refusals import refusals
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.tiny_composition import BATCH, LENGTH, Composition
from xformer_kit.tensors.tokens import Tokens

PLACES = {  # place -> whether it is a map's output, and the modules there
    "A": (False, ["attn"]),
    "B": (True, ["attn.q", "attn.k", "attn.v"]),
    "C": (False, ["ffn"]),
    "D": (True, ["ffn.gate", "ffn.up"]),
}


def convolved(y, convolution):
    """h_t + sum_j w_j h_{t-j} by torch's grouped convolution."""
    weight, past = convolution.weight[:, None], convolution.width - 1
    return y + F.conv1d(F.pad(y.mT, (past, 0)), weight, groups=len(weight)).mT


@pytest.mark.parametrize("place", PLACES)
@torch.no_grad()
def test_a_convolution_is_at_its_place(place):
    """The model equals one without the extra in which hooks of torch convolve the same channels,
    with norms of queries and keys, rotation and one head of keys.
    """
    changes = {"attn": {"name": "multi_head", "qk_norm": "head", "kv_heads": 1}}
    case = Composition(tiny_config(extra={"canon": {"at": [place]}}, **changes), "")
    plain = Composition(tiny_config(**changes), "").model()
    model = case.model()
    plain.load_state_dict(
        {name: p for name, p in model.state_dict().items() if ".extra." not in name}
    )
    of_output, paths = PLACES[place]
    for depth, block in enumerate(plain.decoder.blocks):
        convolutions = model.decoder.extra["canon"].layers[str(depth)].convolutions
        for path in paths:
            name, _, part = path.partition(".")
            one = convolutions[name][part or "input"]
            module = block.get_submodule(path)
            if of_output:
                module.register_forward_hook(lambda _, x, y, one=one: convolved(y, one))
            else:
                module.register_forward_pre_hook(
                    lambda _, x, one=one: (convolved(x[0], one), *x[1:])
                )
    expected = case.hidden(plain)
    assert_close(case.hidden(model), expected)


test_every_law_is_kept = every_law_test(
    {
        "window": {
            "extra": {"canon": {}},
            "ffn": "mlp",
            "placement": "sandwich",
            "position": "alibi",
            "mask": "sliding_window",
        },
        "shared blocks": {
            "extra": {"canon": {"at": ["A", "B", "C"]}},
            "attn": "differential",
            "ffn": "moe",
            "layers": 3,
            "unique_layers": 2,
            "decoder": {"layout": [["attn", "ffn"]]},
        },
        "encoder-decoder": {
            "extra": {"canon": {}},
            "model": "encoder_decoder",
            "mask": "prefix",
        },
        "earlier keys": {
            "extra": {"canon": {}},
            "layers": 4,
            "decoder": {
                "pattern": ["base", "shared"],
                "variants": {"shared": {"attn": {"keys": "earlier"}}},
            },
        },
    }
)


def test_layers_may_have_different_widths():
    wide = {"variants": {"wide": {"ffn": {"width": 48}}}, "pattern": ["base", "wide"]}
    config = tiny_config(extra={"canon": {}}, ffn={"name": "mlp", "width": 24}, decoder=wide)
    LAWS["parameters"](config)
    layers = Composition(config, "").model().decoder.extra["canon"].layers.values()
    assert [len(layer.convolutions["ffn"]["up"].weight) for layer in layers] == [24, 48]


def test_a_cache_does_not_grow_with_the_length():
    model = Composition(tiny_config(extra={"canon": {}}), "").model()
    sizes = [
        sum(cache.bytes for cache in model.cache(1, length).extra["canon"].values())
        for length in (5, 20)
    ]
    assert sizes[0] == sizes[1] > 0


@torch.no_grad()
def test_padding_between_tokens_and_documents():
    """The fourth token reads the second and the first; the sixth, of another document, none."""
    case = Composition(tiny_config(extra={"canon": {"at": ["C"]}}, decoder={"layout": ["ffn"]}), "")
    model = case.model()
    real = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    real[:, 2] = False
    document = (torch.arange(LENGTH) >= 5).long().expand(BATCH, -1)
    kept = real[0].nonzero()[:, 0]
    given = Tokens(ids=case.ids, real=real, document=document)
    without = Tokens(ids=case.ids[:, kept], document=document[:, kept])
    got, expected = (model.hidden(tokens)[0] for tokens in (given, without))
    assert_close(got[:, kept], expected)
    alone = model.hidden(Tokens(ids=case.ids[:, 5:]))[0]
    assert_close(got[:, 5:], alone)


test_refused = refusals(
    {
        "extra.canon.at=[]": "extra.canon.at: must name each place once; got []. Try [A, B].",
        "extra.canon.at=[A,A]": (
            "extra.canon.at: must name each place once; got [A, A]. Try [A, B]."
        ),
        "extra.canon.tokens=1": "extra.canon.tokens: must be at least 2 tokens; got 1.",
        "extra.canon={} ffn=moe": (
            "extra.canon.at: 'D' changes up, and ffn 'moe' has none. Leave D out."
        ),
        "extra.canon={} attn=gated_delta": (
            "extra.canon.at: 'B' changes q, k and v, and attn 'gated_delta' has none. Leave B out."
        ),
    }
)
