"""attn.score: each by its equation, and by the conditions that define it."""

import math

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.scores import HEADS, KNOWN, SCORED, SEEN, random_score
from xformer_kit import compose
from xformer_kit.attention import SCORES
from xformer_kit.laws import tiny_config

INF = math.inf


def test_a_softcap_bends_scores_before_the_mask():
    capped = 2 * torch.tanh(SCORED / 2)
    got = random_score({"name": "softmax", "softcap": 2.0})(SCORED, SEEN)
    assert_close(got[..., :2, :], capped.masked_fill(~SEEN, -INF)[..., :2, :].softmax(-1))


def test_a_sink_is_a_key_without_a_value_and_plus_one_is_a_sink_of_score_zero():
    score = random_score({"name": "softmax", "sinks": True})
    exps = SCORED.exp()
    total = exps.sum(-1, keepdim=True)
    assert_close(score(SCORED, None), exps / (total + score.sink.exp().view(HEADS, 1, 1)))
    assert_close(
        random_score({"name": "softmax", "plus_one": True})(SCORED, None), exps / (total + 1)
    )
    far = SCORED - 1000  # no overflow, and no weight
    assert_close(
        random_score({"name": "softmax", "plus_one": True})(far, None), torch.zeros_like(far)
    )


def test_sigmoid_is_about_as_much_weight_as_softmax_whatever_the_length():
    zero = torch.zeros(1, 1, 1, 1000, dtype=torch.float64)
    assert random_score({"name": "sigmoid"})(zero, None).sum() == pytest.approx(1, abs=2e-3)
    assert_close(
        random_score({"name": "sigmoid", "bias": -1.0})(SCORED, None), 1 / (1 + (1 - SCORED).exp())
    )
    assert_close(random_score({"name": "sigmoid"})(SCORED, None), 1 / (1 + 7 * (-SCORED).exp()))


def test_plain_softmax_is_computed_by_the_kernel():
    from xformer_kit.model.build import build_model

    assert all(block.attn.score is None for block in build_model(tiny_config(), 37).decoder.blocks)


REFUSED = {
    "attn.score.softcap=0": ("attn.score.softcap: must be above 0; got 0. null is no cap."),
    "attn.score.sinks=true attn.score.plus_one=true": (
        "attn.score.plus_one: is a sink with the score 0, and sinks=true adds one with a learned"
        " score. Choose one."
    ),
    "attn.score=3": f"attn.score: must name a score; got 3. {KNOWN}",
    "attn.score=null": f"attn.score: must name a score; got null. {KNOWN}",
    "attn.score.softcap=3 kernel=sdpa": (
        "kernel: 'sdpa' cannot: attn.score is softmax with softcap, and sdpa computes only"
        " softmax. Use kernel=auto or kernel=reference."
    ),
}


test_refused_configs = refusals(REFUSED)


@pytest.mark.extended
def test_a_score_of_a_users_file_is_registered_and_checked_by_the_laws(tmp_path):
    from xformer_kit.laws import check_file

    source = """
from xformer_kit.attention import SCORES, Score

@SCORES.register("cubed")
class Cubed(Score):
    \"\"\"relu(s)^3 / sum of the same: weights that may be zero.\"\"\"

    def __init__(self, *, floor: float = 0.1):  # added to the sum
        super().__init__()
        self.floor = floor

    @classmethod
    def describe(cls, options):
        return "cubed"

    def weights(self, scores):
        cubes = scores.relu() ** 3
        return cubes / (cubes.sum(-1, keepdim=True) + self.floor)
"""
    path = tmp_path / "scores.py"
    path.write_text(source)
    try:
        config = compose([f"components=[{path}]", "attn.score.name=cubed", "attn.score.floor=0.5"])
        assert config["attn"]["score"] == {"name": "cubed", "floor": 0.5}
        [check] = check_file(str(path))
        assert check.component == "attn.score cubed"
        assert [result.sentence for result in check.results if result.verdict == "broken"] == []
    finally:
        SCORES.forget(SCORES["cubed"].__module__)
