"""What all scores of the zoo have in common."""

import pytest
import torch
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.attention import SCORES
from xformer_kit.laws import LAWS, faults, tiny

HEADS = 3

NODES = [
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


@each
@pytest.mark.parametrize(
    "law",
    ["causality", "documents", "padding", "cache", "nothing", "gradients", "precision", "start"],
)
def test_laws(law, node):
    position = "alibi" if law in ("cache", "padding") else "none"
    assert LAWS[law](tiny(attn={"name": "multi_head", "score": node}, position=position)) is None


@pytest.mark.parametrize("node", NODES, ids=IDS)
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
