"""score talking_heads: heads are mixed."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.scores import HEADS, SCORED, SEEN, random_score
from xformer_kit.attention import SCORES


def test_scaled_talking_heads_are_those_of_x_transformers():
    attend = pytest.importorskip("x_transformers.attend").Attend(
        heads=HEADS, scale=1.0, pre_scale_post_talking_heads=True
    )
    score = random_score(
        {"name": "talking_heads", "logits": False, "probabilities": False, "scaled": True}
    )
    with torch.no_grad():
        attend.pre_scale_post_talking_heads.weight.copy_(score.factors.T[..., None, None])
    eye = torch.eye(7, dtype=torch.float64).expand(2, HEADS, 7, 7)
    assert_close(attend.double()(SCORED, eye, eye)[0], score(SCORED, None), atol=1e-6, rtol=1e-6)


def test_talking_heads_mix_before_and_after_softmax():
    score = random_score({"name": "talking_heads"})
    mixed = torch.stack(
        [sum(score.logits[i, j] * SCORED[:, i] for i in range(HEADS)) for j in range(HEADS)], 1
    )
    weights = mixed.softmax(-1)
    expected = [
        sum(score.probabilities[i, j] * weights[:, i] for i in range(HEADS)) for j in range(HEADS)
    ]
    assert_close(score(SCORED, None), torch.stack(expected, 1))
    logits_only = SCORES.create({"name": "talking_heads", "probabilities": False}, heads=HEADS)
    assert_close(
        logits_only.double()(SCORED, SEEN), SCORES.create("softmax", heads=HEADS)(SCORED, SEEN)
    )  # starts as softmax


REFUSED = {
    ("attn.score.name=talking_heads attn.score.logits=false attn.score.probabilities=false"): (
        "attn.score.logits: must be true if probabilities=false and scaled=false. Set one"
        " of them, or attn.score.name=softmax."
    ),
}


test_refused_configs = refusals(REFUSED)
