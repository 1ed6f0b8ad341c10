"""score inverted: queries compete for keys."""

import pytest
import torch
from refusals import refusals_with, refused
from torch.testing import assert_close

from xformer_kit import compose
from xformer_kit.attention import SCORES
from xformer_kit.laws import LAWS, tiny_config

SCORED = (
    torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2
)

EYE = torch.eye(7, dtype=torch.float64).expand(
    2, 3, 7, 7
)  # as keys and as values: what comes out are the weights

INVERTED = {"name": "multi_head", "score": {"name": "inverted"}}


@pytest.mark.parametrize("eps", [1e-8, 0.3])
def test_inverted_weights_are_those_of_slot_attention(eps):
    weights = SCORES.create({"name": "inverted", "eps": eps}, heads=3)(SCORED, None)
    won = SCORED.exp() / SCORED.exp().sum(-2, keepdim=True)
    assert_close(weights, won / (won.sum(-1, keepdim=True) + eps))
    if eps < 0.1:
        theirs = pytest.importorskip("x_transformers.attend").Attend(
            heads=3, scale=1.0, inverted_attention=True
        )
        assert_close(theirs(SCORED, EYE, EYE)[0], weights, atol=1e-6, rtol=1e-6)


def test_queries_that_compete_worked_out():
    """The last query is padding; the first does not see the second key, no query sees the third."""
    seen = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 0]]).bool()
    weights = SCORES.create("inverted", heads=1)(
        torch.zeros(1, 1, 3, 3), seen, real=torch.tensor([[True, True, False]])
    )
    assert_close(weights, torch.tensor([[[[1, 0, 0], [1 / 3, 2 / 3, 0], [0, 0, 0]]]]))


@pytest.mark.parametrize(
    "law", ["documents", "padding", "nothing", "symmetry", "gradients", "batch"]
)
def test_laws_of_inverted(law):
    position = "none" if law == "symmetry" else "alibi"
    assert LAWS[law](tiny_config("encoder", attn=INVERTED, position=position)) is None


REFUSED = {
    (
        "model=encoder_decoder task=seq2seq model.decoder.cross.score.name=inverted"
    ): "the output of a token would depend on later ones",
    (
        "model=encoder task=masked_language_modeling attn.score.name=inverted attn.score.eps=0"
    ): "eps: must be above 0; got 0",
}


test_refused_configs = refusals_with(REFUSED)


@pytest.mark.parametrize("attn", ["multi_head", "laser"])
def test_of_two_laws_that_it_breaks_one_is_named(attn):
    assert refused(f"attn={attn} attn.score=inverted") == [
        f"attn: '{attn}' breaks the law of causality (score 'inverted': queries compete for"
        " keys, those of later tokens too), which task=language_modeling needs. Choose another"
        " attn.score."
    ]


def test_an_encoder_may_invert():
    compose(["model=encoder", "task=masked_language_modeling", "attn.score.name=inverted"])
