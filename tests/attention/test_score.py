"""attn.score: each by its equation, and by the conditions that define it."""

import math

import pytest
import torch
from refusing import refused
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit import compose
from xformer_kit.attention import SCORES
from xformer_kit.laws import LAWS, faults, tiny

INF = math.inf
HEADS = 3
NODES = [
    {"name": "softmax"},
    {"name": "softmax", "softcap": 2.0, "sinks": True},
    {"name": "softmax", "plus_one": True},
    {"name": "sigmoid"},
    {"name": "sigmoid", "bias": -1.0},
]
IDS = [" ".join(map(str, node.values())) for node in NODES]
each = pytest.mark.parametrize("node", NODES, ids=IDS)
smooth = pytest.mark.parametrize(
    "node", [node for node in NODES if node["name"] not in ("hard", "gumbel")], ids=str
)


SPARSE = ("relu2", "top_k", "entmax")


def made(node):
    score = SCORES.create(node, heads=HEADS).double().eval()
    with torch.no_grad():
        for i, p in enumerate(score.parameters()):
            p.add_(
                torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).double(), alpha=0.5
            )
    return score


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


SCORED = drawn(2, HEADS, 5, 7) * 2
SEEN = torch.arange(7) <= torch.arange(5)[:, None] + 1
SEEN = SEEN & (torch.arange(5) != 2)[:, None]  # the third query sees nothing


@each
def test_a_sparse_score_leaves_keys_that_are_seen_without_a_gradient_and_no_other_does(node):
    scores, score = SCORED.clone().requires_grad_(), made(node)
    (score(scores, SEEN) * drawn(*SCORED.shape)).sum().backward()
    assert bool((scores.grad[SEEN.expand_as(scores)] == 0).any()) == (node["name"] in SPARSE)


@each
def test_what_is_hidden_has_no_weight_and_a_row_with_nothing_to_see_none_at_all(node):
    weights = made(node)(SCORED, SEEN)
    assert weights.isfinite().all()
    assert (weights[..., 2, :] == 0).all()
    assert (weights[~SEEN.expand_as(weights)] == 0).all()
    for row in (0, 1, 3, 4):  # as if the hidden keys did not exist
        assert_close(
            weights[..., row, : row + 2],
            made(node)(SCORED[..., row : row + 1, : row + 2], None)[..., 0, :],
        )


@smooth  # all but `hard` and `gumbel`, which have the gradient of another
def test_gradients_are_those_of_finite_differences(node):
    score, seen = made(node), SEEN[:, :4]

    def of(x):
        return score(x, seen)[..., [0, 1, 3, 4], :]

    assert torch.autograd.gradcheck(of, (drawn(1, HEADS, 5, 4).requires_grad_(),))


def test_a_softcap_bends_scores_before_the_mask():
    capped = 2 * torch.tanh(SCORED / 2)
    got = made({"name": "softmax", "softcap": 2.0})(SCORED, SEEN)
    assert_close(got[..., :2, :], capped.masked_fill(~SEEN, -INF)[..., :2, :].softmax(-1))


def test_a_sink_is_a_key_without_a_value_and_plus_one_is_a_sink_of_score_zero():
    score = made({"name": "softmax", "sinks": True})
    exps = SCORED.exp()
    total = exps.sum(-1, keepdim=True)
    assert_close(score(SCORED, None), exps / (total + score.sink.exp().view(HEADS, 1, 1)))
    assert_close(made({"name": "softmax", "plus_one": True})(SCORED, None), exps / (total + 1))
    far = SCORED - 1000  # no overflow, and nothing to look at
    assert_close(made({"name": "softmax", "plus_one": True})(far, None), torch.zeros_like(far))


def test_sigmoid_is_about_as_much_weight_as_softmax_whatever_the_length():
    zero = torch.zeros(1, 1, 1, 1000, dtype=torch.float64)
    assert made({"name": "sigmoid"})(zero, None).sum() == pytest.approx(1, abs=2e-3)
    assert_close(
        made({"name": "sigmoid", "bias": -1.0})(SCORED, None), 1 / (1 + (1 - SCORED).exp())
    )
    assert_close(made({"name": "sigmoid"})(SCORED, None), 1 / (1 + 7 * (-SCORED).exp()))


# In models.


@each
@pytest.mark.parametrize(
    "law",
    ["causality", "documents", "padding", "cache", "nothing", "gradients", "precision", "start"],
)
def test_laws(law, node):
    position = "alibi" if law in ("cache", "padding") else "none"
    assert LAWS[law](tiny(attn={"name": "multi_head", "score": node}, position=position)) is None


@pytest.mark.parametrize("node", NODES[1:], ids=IDS[1:])
def test_a_kernel_that_computes_softmax_alone_refuses_and_auto_takes_the_reference(node):
    from xformer_kit.inspect.describe import kernels
    from xformer_kit.model.build import build_model
    from xformer_kit.plan import stacks

    config = tiny(attn={"name": "multi_head", "score": node})
    assert not faults(config)
    (refusal,) = messages(faults({**config, "kernel": {"name": "sdpa"}}))
    assert refusal.startswith("kernel: 'sdpa' cannot: attn.score is ")
    (choice,) = kernels(config, stacks(config), build_model(config, 37))
    assert choice.kernel == "reference"
    assert any(f"not sdpa: attn.score is {node['name']}" in why for why in choice.why)


def test_plain_softmax_is_left_to_the_kernel():
    from xformer_kit.model.build import build_model

    assert all(block.attn.score is None for block in build_model(tiny(), 37).decoder.blocks)


KNOWN = (
    "Known: cog, entmax, gumbel, hard, inverted, relu2, residual, selective, sigmoid, softmax,"
    " talking_heads, top_k."
)
REFUSED = {
    "attn.score.softcap=0": ("attn.score.softcap: must be above 0; got 0. null is no cap."),
    "attn.score.sinks=true attn.score.plus_one=true": (
        "attn.score.plus_one: is a sink whose score is 0, and beside sinks=true there is one that"
        " is learned. Choose one."
    ),
    "attn.score=3": f"attn.score: must name a score; got 3. {KNOWN}",
    "attn.score=null": f"attn.score: must name a score; got null. {KNOWN}",
    "attn.score.softcap=3 kernel=sdpa": (
        "kernel: 'sdpa' cannot: attn.score is softmax with softcap, and sdpa computes softmax"
        " alone. Use kernel=auto or kernel=reference."
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words):
    assert refused(words) == [REFUSED[words]]


def test_a_score_of_ones_own_is_a_part_and_is_judged_by_the_laws(tmp_path):
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
    def beyond(cls, options):
        return "cubed"

    def weights(self, scores):
        cubes = scores.relu() ** 3
        return cubes / (cubes.sum(-1, keepdim=True) + self.floor)
"""
    path = tmp_path / "scores.py"
    path.write_text(source)
    try:
        config = compose([f"parts=[{path}]", "attn.score.name=cubed", "attn.score.floor=0.5"])
        assert config["attn"]["score"] == {"name": "cubed", "floor": 0.5}
        results = check_file(str(path))
        assert {result.part for result in results} == {"attn.score cubed"}
        assert [result.sentence for result in results if result.verdict == "broken"] == []
    finally:
        SCORES.forget(SCORES["cubed"].__module__)
