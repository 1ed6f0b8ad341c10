"""Scores that tokens take away from others: x-transformers' function, the sum written out, and
generation.
"""

import pytest
import torch
from torch.testing import assert_close

from xformer_kit import ConfigError, compose
from xformer_kit.attention import SCORES
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.tiny_composition import Composition

SCORED = (
    torch.randn(2, 3, 7, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2
)
CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()
NODE = {"name": "multi_head", "score": {"name": "selective"}}


@pytest.mark.parametrize("keep_first", [True, False])
def test_weights_are_those_of_x_transformers(keep_first):
    selective_attn = pytest.importorskip("x_transformers.attend").selective_attn
    hidden = SCORED.masked_fill(~CAUSAL, -torch.finfo(torch.float64).max)
    score = SCORES.create({"name": "selective", "keep_first": keep_first}, heads=3)
    expected = selective_attn(hidden, no_mask_sos=keep_first).softmax(-1)
    assert_close(
        score(SCORED, CAUSAL), expected, atol=1e-6, rtol=1e-6
    )  # theirs has an identity in fp32


def test_what_earlier_queries_took_away_by_eye():
    """The third token takes 2 from the second, which the fourth then sees as much as a score of
    0.
    """
    scores = torch.zeros(1, 2, 4, 4, dtype=torch.float64)
    scores[0, 0, 2, :3] = torch.tensor([5.0, 2.0, 3.0])  # not from the first token, nor from itself
    scores[0, :, 3, 1] = 2.0
    weights = SCORES.create("selective", heads=2)(scores, CAUSAL[:4, :4])
    assert_close(weights[0, :, 3], torch.full((2, 4), 0.25, dtype=torch.float64))
    assert_close(
        weights[0, :, 2], scores[0, :, 2].masked_fill(~CAUSAL[2, :4], -torch.inf).softmax(-1)
    )


@pytest.mark.parametrize(
    "law", ["cache", "cache with padding", "select and rewind", "documents", "padding", "greedy"]
)
def test_laws(law):
    for keep_first in (True, False) if "padding" in law else (True,):
        score = {"name": "selective", "keep_first": keep_first}
        assert LAWS[law](tiny_config(attn={**NODE, "score": score}, position="alibi")) is None


@torch.no_grad()
def test_padding_between_a_prompt_and_what_follows_takes_nothing_away():
    case = Composition(tiny_config(attn=NODE, position="rotary"), "")
    model, ids = case.model(), case.ids[:1]
    real = torch.tensor([[True] * 5 + [False] * 4 + [True] * 4])
    unseen = case.logits(model, ids[:, real[0]])
    assert_close(case.logits(model, ids, real=real)[:, real[0]], unseen)


@torch.no_grad()
def test_a_cache_says_that_it_cannot_go_back():
    case = Composition(tiny_config(attn=NODE), "")
    model, past = case.model(), None
    past = case.empty_cache(model)
    case.hidden(model, case.ids, cache=past)
    held = past.bytes
    assert past.caches[0]["attn"].subtracted.shape == (3, 13)
    with pytest.raises(
        ConfigError, match="stores only the sum of what all queries subtracted; got 2"
    ):
        past.rewind(2)
    past.select(torch.tensor([1]))
    assert past.caches[0]["attn"].subtracted.shape == (1, 13)
    assert held > past.caches[0]["attn"].bytes


def test_a_source_is_not_selected():
    with pytest.raises(ConfigError, match="the tokens of a source are not before any query"):
        compose(["model=encoder_decoder", "task=seq2seq", "attn.score.name=selective"])
    compose(
        [
            "model=encoder_decoder",
            "task=seq2seq",
            "attn.score.name=selective",
            "model.decoder.cross.score.name=softmax",
        ]
    )
