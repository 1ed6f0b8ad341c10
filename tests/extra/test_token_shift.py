"""Channels of earlier tokens: by eye, as x-transformers has it, and under the laws."""

import re

import pytest
import torch
from torch.testing import assert_close

from tests.laws_kept import every_law_test
from tests.messages import messages
from xformer_kit.extra import TokenShift, previous_places
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.tensors.tokens import Tokens

SUBLAYERS = {0: {"attn": "attn"}}
TENS = 10 * torch.arange(1, 6)[None, :, None] + torch.arange(
    4
)  # (1, 5, 4): 10 11 12 13, 20 21 22 23, ...


def shift(dim, tokens):
    return TokenShift(dim, SUBLAYERS, tokens=tokens)


def test_by_eye():
    """Three parts of one channel, and one that is left over."""
    assert shift(4, 2).shifted(TENS, None, None)[0].tolist() == [
        [10, 0, 0, 13],
        [20, 11, 0, 23],
        [30, 21, 12, 33],
        [40, 31, 22, 43],
        [50, 41, 32, 53],
    ]


def test_by_eye_with_padding_and_documents():
    """The second token is padding, and the last but one begins another document."""
    part = shift(4, 2)
    tokens = Tokens(
        real=torch.tensor([[1, 0, 1, 1, 1]]).bool(), document=torch.tensor([[0, 0, 0, 1, 1]])
    )
    moved = part.shifted(TENS, previous_places(tokens, 5, 2), None)[0]
    assert moved[[0, 2, 3, 4]].tolist() == [
        [10, 0, 0, 13],
        [30, 11, 0, 33],
        [40, 0, 0, 43],
        [50, 41, 0, 53],
    ]


@pytest.mark.parametrize("dim", [9, 11])
def test_it_is_the_shift_of_x_transformers(dim):
    theirs = pytest.importorskip("x_transformers.x_transformers").ShiftTokens(range(4), lambda x: x)
    x = torch.randn(2, 6, dim)
    assert_close(shift(dim, 3).shifted(x, None, None), theirs(x))
    # fewer tokens than are shifted
    assert_close(shift(dim, 3).shifted(x[:, :2], None, None), theirs(x[:, :2]))


@pytest.mark.parametrize("fields", [(), ("real",), ("document",), ("real", "document")])
def test_all_at_once_is_token_by_token_from_a_cache(fields):
    drawn = {"real": torch.rand(2, 9) > 0.4, "document": torch.arange(9).expand(2, -1) // 4}
    tokens, x = (
        Tokens(slot=torch.arange(9)[None], **{name: drawn[name] for name in fields}),
        torch.randn(2, 9, 7),
    )
    part, found = shift(7, 2), []
    cache = part.caches(2, 9, x)["0.attn"]
    for start, end in ((0, 1), (1, 4), (4, 5), (5, 9)):
        read = tokens.map(lambda field: field[:, :end])  # noqa: B023
        places = previous_places(read, end - start, 2)
        found.append(part.shifted(x[:, start:end], places, cache))
    assert_close(torch.cat(found, 1), part.shifted(x, previous_places(tokens, 9, 2), None))


test_a_shift_keeps_every_law = every_law_test(
    {
        "shared blocks": {
            "extra": {"token_shift": {"tokens": 2}},
            "layers": 3,
            "unique_layers": 2,
            "sharing": "cycle",
            "mask": "sliding_window",
            "position": "alibi",
        },
        "recurrent": {
            "extra": {"token_shift": {"tokens": 4}},
            "attn": "gated_delta",
            "ffn": "moe",
            "placement": "lime",
            "decoder": {"layout": [["attn", "ffn"]]},
        },
        "encoder-decoder": {
            "extra": {"token_shift": {"tokens": 1}},
            "model": "encoder_decoder",
            "mask": "prefix",
        },
    }
)


@torch.no_grad()
def test_every_sublayer_reads_shifted_channels():
    """Two feed-forward layers, each with a shift by one: the first token has an effect on the first
    three outputs only.
    """
    case = Composition(
        tiny_config(extra={"token_shift": {}}, decoder={"layout": ["ffn"]}, position="none"), ""
    )
    model, other = case.model(), case.ids.clone()
    other[:, 0] += 1
    moved = (case.hidden(model, case.ids) - case.hidden(model, other)).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [True] * 3 + [False] * 10


@pytest.mark.parametrize(
    ("shift", "sentence"),
    [
        (-1, r"extra\.token_shift\.tokens: must be at least 1 token; got -1\."),
        (36, r"extra\.token_shift\.tokens: must be at most 35; got 36\."),
    ],
)
def test_what_cannot_be_is_answered(shift, sentence):
    (fault,) = messages(faults(tiny_config(extra={"token_shift": {"tokens": shift}})))
    assert re.fullmatch(sentence, fault)


def test_blocks_without_parameters_have_caches_too():
    """A block of averages has no weight that says where its cache lies."""
    config = tiny_config(
        attn="mean",
        position="none",
        norm="none",
        decoder={"layout": ["attn"]},
        extra={"token_shift": {}},
    )
    LAWS["greedy"](config)
    LAWS["cache"](config)
