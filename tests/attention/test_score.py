"""attn.score: each by its equation, and by the conditions that define it."""

import math

import pytest
import torch
from refusing import refused
from torch.testing import assert_close

from xformer_kit import compose
from xformer_kit.attention import SCORES
from xformer_kit.attention.entmax import _bisected, entmax
from xformer_kit.laws import LAWS, faults, tiny

INF = math.inf
HEADS = 3
NODES = [
    {"name": "softmax"},
    {"name": "softmax", "softcap": 2.0, "sinks": True},
    {"name": "softmax", "plus_one": True},
    {"name": "sigmoid"},
    {"name": "sigmoid", "bias": -1.0},
    {"name": "entmax"},
    {"name": "entmax", "alpha": 1.25},
    {"name": "entmax", "alpha": 2},
    {"name": "relu2"},
    {"name": "talking_heads"},
    {"name": "talking_heads", "scaled": True},
    {"name": "top_k", "k": 2},
    {"name": "hard"},
    {"name": "gumbel"},
    {"name": "cog"},
]
IDS = [" ".join(map(str, node.values())) for node in NODES]
each = pytest.mark.parametrize("node", NODES, ids=IDS)
smooth = pytest.mark.parametrize(
    "node", [node for node in NODES if node["name"] not in ("hard", "gumbel")], ids=str
)


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
    assert bool((scores.grad[SEEN.expand_as(scores)] == 0).any()) == score.sparse


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


def test_relu2_by_eye():
    scores = torch.tensor([[[[3.0, -1.0, 1.0, 5.0]]]], dtype=torch.float64)
    assert made({"name": "relu2"})(scores, torch.tensor([True, True, True, False])).tolist() == [
        [[[3, 0, 1 / 3, 0]]]
    ]


def test_the_largest_scores_by_eye():
    seen, half = torch.tensor([True] * 4 + [False]), [[[[0.5, 0.5, 0, 0, 0]]]]
    row = torch.tensor([[[[2.0, 2.0, 1.0, 0.0, 9.0]]]], dtype=torch.float64)
    assert made({"name": "top_k", "k": 2})(row, seen).tolist() == half
    assert (
        made({"name": "hard"})(row, seen).tolist() == half
    )  # of two that are largest, neither comes first
    assert made({"name": "hard"})(row, None).tolist() == [[[[0, 0, 0, 0, 1]]]]
    tied = made({"name": "top_k", "k": 3})(
        torch.tensor([3.0, 1, 1, 1, 0]).double().view(1, 1, 1, 5), None
    )
    assert (tied > 0).tolist() == [
        [[[True, True, True, True, False]]]
    ]  # what equals the third stays


@pytest.mark.parametrize("k", [2, 3, 5])
def test_top_k_is_softmax_of_the_k_largest(k):
    weights = made({"name": "top_k", "k": k})(SCORED, None)
    high = SCORED.topk(k, -1)
    assert_close(weights.gather(-1, high.indices), high.values.softmax(-1))
    assert ((weights > 0).sum(-1) == k).all()


def test_as_many_keys_as_are_seen_or_more_is_softmax():
    soft = SCORES.create("softmax", heads=HEADS)(SCORED, SEEN)
    assert_close(made({"name": "top_k", "k": 7})(SCORED, SEEN), soft)
    assert_close(made({"name": "top_k", "k": 100})(SCORED, SEEN), soft)


def test_hard_takes_the_largest_and_learns_as_softmax_does():
    scores, g = SCORED.clone().requires_grad_(), drawn(*SCORED.shape)
    weights = made({"name": "hard"})(scores, None)
    assert torch.equal(weights, torch.nn.functional.one_hot(SCORED.argmax(-1), 7).double())
    (ours,) = torch.autograd.grad(weights, scores, g)
    assert_close(ours, torch.autograd.grad(scores.softmax(-1), scores, g)[0])


def test_hard_finds_the_largest_also_where_it_is_compiled_in_half_precision():
    score = SCORES.create("hard", heads=HEADS)

    @torch.compile
    def weights(q, k):
        return score(q @ k.transpose(-1, -2) * 0.37, None)  # numbers between bf16's

    q, k = drawn(1, HEADS, 100, 8).bfloat16(), drawn(1, HEADS, 90, 8).bfloat16()
    assert_close(weights(q, k).float().sum(-1), torch.ones(1, HEADS, 100), atol=0.01, rtol=0)


def test_gumbel_draws_a_key_with_the_probabilities_of_softmax_in_training_alone():
    scores = torch.tensor([2.0, 1.0, 0.0, -1.0]).log_softmax(-1).expand(1, 1, 40_000, 4)
    score = made({"name": "gumbel", "temperature": 0.5})
    assert torch.equal(score(scores, None)[0, 0, 0], torch.tensor([1.0, 0, 0, 0]))
    torch.manual_seed(0)
    drawn = score.train()(scores, torch.tensor([True, True, True, False]))
    assert_close(drawn.sum(-1), torch.ones(1, 1, 40_000))
    assert set(drawn.round(decimals=4).unique().tolist()) == {0.0, 1.0}
    assert_close(
        drawn.mean(-2)[0, 0],
        torch.tensor([*torch.tensor([2.0, 1.0, 0.0]).softmax(-1), 0]),
        atol=0.01,
        rtol=0,
    )


@pytest.mark.parametrize("hard", [True, False])
def test_gumbel_is_that_of_torch_with_the_same_draw(hard):
    grads = []
    for of in (
        made({"name": "gumbel", "temperature": 0.7, "hard": hard}).train(),
        lambda x, seen: torch.nn.functional.gumbel_softmax(x, 0.7, hard),
    ):
        torch.manual_seed(5)
        x = SCORED.clone().requires_grad_()
        weights = of(x, None)
        grads.append((weights.detach(), *torch.autograd.grad((weights * drawn(*x.shape)).sum(), x)))
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs)


def test_cog_is_softmax_of_sizes_with_the_scores_signs():
    weights = made({"name": "cog"})(SCORED, None)
    assert_close(weights, SCORED.sign() * SCORED.abs().softmax(-1))
    assert_close(weights.abs().sum(-1), torch.ones_like(weights[..., 0]))
    assert (weights < 0).any()
    row = torch.tensor([[[[-1.0, 1.0, 9.0]]]], dtype=torch.float64)
    assert made({"name": "cog"})(row, torch.tensor([True, True, False])).tolist() == [
        [[[-0.5, 0.5, 0]]]
    ]


@pytest.mark.parametrize(
    ("node", "theirs"),
    [
        ({"name": "top_k", "k": 3}, {"sparse_topk": 3}),
        ({"name": "hard"}, {"hard": True}),
        ({"name": "cog"}, {"cog_signed": True}),
    ],
)
def test_scores_are_those_of_x_transformers(node, theirs):
    attend = pytest.importorskip("x_transformers.attend").Attend(
        heads=HEADS, causal=False, scale=1.0, **theirs
    )
    eye = torch.eye(7, dtype=torch.float64).expand(2, HEADS, 7, 7)
    # Unit vectors as keys and as values: what comes out are the weights. Its softmax is in fp32.
    assert_close(attend(SCORED, eye, eye)[0], made(node)(SCORED, None), atol=1e-6, rtol=1e-6)


def test_scaled_talking_heads_are_those_of_x_transformers():
    attend = pytest.importorskip("x_transformers.attend").Attend(
        heads=HEADS, scale=1.0, pre_scale_post_talking_heads=True
    )
    score = made({"name": "talking_heads", "logits": False, "probabilities": False, "scaled": True})
    with torch.no_grad():
        attend.pre_scale_post_talking_heads.weight.copy_(score.factors.T[..., None, None])
    eye = torch.eye(7, dtype=torch.float64).expand(2, HEADS, 7, 7)
    assert_close(attend.double()(SCORED, eye, eye)[0], score(SCORED, None), atol=1e-6, rtol=1e-6)


def test_talking_heads_mix_before_and_behind():
    score = made({"name": "talking_heads"})
    mixed = torch.stack(
        [sum(score.logits[i, j] * SCORED[:, i] for i in range(HEADS)) for j in range(HEADS)], 1
    )
    weights = mixed.softmax(-1)
    expected = [
        sum(score.probabilities[i, j] * weights[:, i] for i in range(HEADS)) for j in range(HEADS)
    ]
    assert_close(score(SCORED, None), torch.stack(expected, 1))
    alone = SCORES.create({"name": "talking_heads", "probabilities": False}, heads=HEADS)
    assert_close(
        alone.double()(SCORED, SEEN), SCORES.create("softmax", heads=HEADS)(SCORED, SEEN)
    )  # starts as softmax


# entmax: the conditions that define it.


@pytest.mark.parametrize("alpha", [1.05, 1.25, 1.5, 1.75, 2.0, 2.5])
def test_entmax_is_on_the_simplex_and_has_one_threshold(alpha):
    s = torch.cat([SCORED, 30 * SCORED, 0.01 * SCORED, torch.zeros_like(SCORED)])
    p = entmax(s, alpha)
    assert (p >= 0).all()
    assert_close(p.sum(-1), torch.ones_like(p[..., 0]))
    tau = (alpha - 1) * s - p ** (
        alpha - 1
    )  # one number on the support, and no more than it outside
    inside = torch.where(p > 0, tau, torch.nan)
    low, high = (
        (
            inside.nan_to_num(sign * INF).amin(-1)
            if sign > 0
            else inside.nan_to_num(sign * INF).amax(-1)
        )
        for sign in (1, -1)
    )
    assert_close(low, high, atol=1e-6, rtol=1e-6)
    assert (((alpha - 1) * s <= high[..., None] + 1e-6) | (p > 0)).all()


def test_entmax_by_eye():
    assert entmax(torch.tensor([0.5, 0.0]), 2.0).tolist() == [0.75, 0.25]
    assert entmax(torch.tensor([1.0, 0.0, -INF]), 2.0).tolist() == [1, 0, 0]
    assert_close(entmax(torch.tensor([3.0, 3.0, -9.0]), 1.5), torch.tensor([0.5, 0.5, 0.0]))
    assert_close(entmax(SCORED, 1.0001), SCORED.softmax(-1), atol=1e-3, rtol=1e-3)
    assert (entmax(30 * SCORED, 1.5) == 0).any()


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_sorting_and_bisection_agree(alpha):
    x = (alpha - 1) * (SCORED - SCORED.amax(-1, keepdim=True))
    assert_close(entmax(SCORED, alpha), _bisected(x, alpha))


def test_entmax_of_half_precision_is_computed_in_single():
    for dtype in (torch.bfloat16, torch.float16):
        p = entmax(SCORED.to(dtype), 1.5)
        assert p.dtype == dtype
        assert_close(p.float(), entmax(SCORED.to(dtype).float(), 1.5), atol=4e-3, rtol=0)


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
    (refusal,) = faults({**config, "kernel": {"name": "sdpa"}})
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
    "attn.score.name=entmx": (
        f"attn.score: no score is called 'entmx'. Did you mean 'entmax'? {KNOWN}"
    ),
    "attn.score.name=sparsemax": "attn.score: 'sparsemax' is called 'entmax' here.",
    "attn.score.alpha=1.5": (
        "attn.score.alpha: score 'softmax' has no option 'alpha'. It has: softcap, sinks, plus_one."
        " Try attn.score=entmax."
    ),
    "attn.score.name=entmax attn.score.alpha=1": (
        "attn.score.alpha: must be above 1; got 1. At 1 it is softmax: attn.score.name=softmax."
    ),
    "attn.score.softcap=0": "attn.score.softcap: must be above 0; got 0. null is no cap.",
    "attn.score.sinks=true attn.score.plus_one=true": (
        "attn.score.plus_one: is a sink whose score is 0, and beside sinks=true there is one that"
        " is learned; choose one."
    ),
    "attn.score.name=talking_heads attn.score.logits=false attn.score.probabilities=false": (
        "attn.score.logits: mixes nothing where probabilities=false and scaled=false too; set one"
        " of them, or attn.score.name=softmax."
    ),
    "attn.score.name=gumbel attn.score.temperature=0": (
        "attn.score.temperature: must be above 0; got 0."
    ),
    "attn.score.name=top_k attn.score.k=1": (
        "attn.score.k: must be at least 2 keys; got 1. One key alone always has weight 1, so that"
        " queries and keys would not learn; attn.score.name=hard learns as softmax does."
    ),
    "attn.score.name=topk": "attn.score: 'topk' is called 'top_k' here.",
    "attn.score.name=hard attn.score.k=3": (
        "attn.score.k: score 'hard' has no option 'k'. It has: none. Try attn.score=top_k."
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


def test_a_variant_differs_in_an_option_of_the_score_or_names_another():
    from xformer_kit.plan import stack_plan

    variants = {
        "capped": {"attn": {"score": {"softcap": 5.0}}},
        "sparse": {"attn": {"score": {"name": "entmax"}}},
    }
    shared = {"name": "multi_head", "score": {"name": "softmax", "sinks": True}}
    config = tiny(
        attn=shared,
        layers=3,
        decoder={"pattern": ["base", "capped", "sparse"], "variants": variants},
    )
    assert not faults(config)
    assert [block.nodes["attn"]["score"] for block in stack_plan(config, "decoder").blocks] == [
        {"name": "softmax", "sinks": True},
        {"name": "softmax", "sinks": True, "softcap": 5.0},
        {"name": "entmax"},
    ]


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
