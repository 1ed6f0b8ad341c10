"""Each text of a row equals the text in a row of its own, wherever padding and documents are."""

import pytest
import torch

from xformer_kit import ConfigError
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB, Composition
from xformer_kit.tensors.tokens import Tokens

ROWS, LENGTH = 6, 16
CALLS = slice(0, 5), slice(5, 6), slice(6, 10), slice(10, LENGTH)  # with a cache
WINDOW = {"name": "sliding_window", "window": 3}
COMPOSITIONS = {
    "causal": {"mask": "causal", "position": "learned"},
    "window": {"mask": WINDOW, "position": "alibi"},
    "strided": {"mask": {"name": "strided", "stride": 3}},
    "any_of": {"mask": {"name": "any_of", "of": [WINDOW, {"name": "global_tokens", "count": 1}]}},
    "reference": {"mask": WINDOW, "kernel": "reference"},
    "both sides": {"mask": {**WINDOW, "causal": False}},
    "chunked": {"mask": {"name": "chunked", "chunk": 3}},
    "gated_delta": {"attn": "gated_delta", "position": "none"},
    "token_shift": {"extra": {"token_shift": {}}, "mask": WINDOW},
}


def batch():
    """Random ids, padding and documents, whose numbers return; padding has numbers too."""
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(VOCAB, (ROWS, LENGTH), generator=draw)
    real = torch.rand(ROWS, LENGTH, generator=draw) < 0.65
    begins = torch.rand(ROWS, LENGTH, generator=draw) < 0.3
    document = torch.where(
        real, begins.cumsum(-1) % 2, torch.randint(3, real.shape, generator=draw)
    )
    real[0], document[1] = True, 0
    return Tokens(ids=ids, real=real, document=document)


def texts(tokens):
    """The row and the indices of each text: real tokens with one number after another."""
    for row, (real, document) in enumerate(zip(tokens.real, tokens.document, strict=True)):
        at = real.nonzero()[:, 0]
        lengths = document[at].unique_consecutive(return_counts=True)[1]
        yield from ((row, text) for text in at.split(lengths.tolist()))


def logits_of(model, tokens, cache=None):
    return model.head(model.hidden(tokens, cache)[0])


def cached(model, tokens):
    cache = model.cache(ROWS, LENGTH)
    parts = (tokens.map(lambda field, at=at: field[:, at]) for at in CALLS)
    return torch.cat([logits_of(model, part, cache) for part in parts], 1)


@pytest.mark.parametrize("name", COMPOSITIONS)
@torch.no_grad()
def test_a_text_equals_that_of_a_row_of_its_own(name):
    composition, tokens = Composition(tiny_config(**COMPOSITIONS[name]), ""), batch()
    model = composition.model()
    found = [logits_of(model, tokens)]
    if not composition.sees_future:
        found.append(cached(model, tokens))
    for row, text in texts(tokens):
        expected = model(tokens.ids[row, text][None])[0]
        for logits in found:
            torch.testing.assert_close(logits[row, text], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in COMPOSITIONS if name != "both sides"])
@torch.no_grad()
def test_a_text_after_calls_of_only_padding_equals_that_of_a_row_of_its_own(name):
    model, ids = Composition(tiny_config(**COMPOSITIONS[name]), "").model(), batch().ids[:1]
    padding = torch.zeros(1, 2, dtype=torch.bool)
    for fields in ({}, {"document": torch.tensor([[0, 1]])}):
        cache = model.cache(1, LENGTH)
        for _ in range(2):
            model(ids[:, :2], real=padding, cache=cache, **fields)
        found = torch.cat([model(part, cache=cache) for part in ids[:, :6].split([4, 2], 1)], 1)
        torch.testing.assert_close(found, model(ids[:, :6]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("attn", ["multi_head", "linear", "performer"])
@torch.no_grad()
def test_a_mask_that_sees_the_future_takes_calls_of_texts_of_their_own(attn):
    model, ids = Composition(tiny_config(attn=attn, mask="full"), "").model(), batch().ids[:1, :3]
    real, document = torch.tensor([[False] * 3, [True] * 3]), torch.tensor([[0] * 3, [1] * 3])
    cache = model.cache(1, 15)
    calls = ((0, 0), (1, 0), (0, 0), (1, 1))  # whether the tokens are real, their document
    for at, number in calls:
        fields = {"real": real[[at]], "document": document[[number]]}
        found = model(ids, cache=cache, **fields)
        if at:
            torch.testing.assert_close(found, model(ids), rtol=0, atol=1e-10)
    with pytest.raises(ConfigError, match=r"^cache: a mask sees the future"):
        model(ids, cache=cache)


NEAR = {"name": "sliding_window", "window": 2, "causal": False}
REFUSED = {
    "future": ({"mask": NEAR}, {}, "cache: a mask sees the future"),
    "prefix": ({"mask": "prefix"}, {"prefix": torch.tensor([[True]])}, "prefix: must be given in"),
    "law": ({"mask": WINDOW, "placement": "mv_split"}, {}, "cache: placement 'mv_split' breaks"),
}


@pytest.mark.parametrize("real", [None, [1, 1], [1, 0], [0, 1]])
@pytest.mark.parametrize("name", REFUSED)
def test_a_call_is_refused_wherever_padding_is(name, real):
    options, fields, sentence = REFUSED[name]
    model, ids = Composition(tiny_config(**options), "").model(), torch.tensor([[1, 2]])
    fields = {field: value.expand(1, 2) for field, value in fields.items()}
    real = None if real is None else torch.tensor([real]).bool()
    cache = model.cache(1, 6)
    model(ids, real=real, cache=cache, **fields)
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        model(ids, real=real, cache=cache, **fields)
    assert cache.length == 2


@pytest.mark.parametrize("ahead", [1, 2])
def test_a_target_is_that_of_a_row_of_its_own(ahead):
    tokens = batch()
    expected = torch.full((ROWS, LENGTH), -1)
    for row, text in texts(tokens):
        expected[row, text[:-ahead]] = tokens.ids[row, text[ahead:]]
    assert torch.equal(tokens.targets(ahead), expected[:, :-1])
