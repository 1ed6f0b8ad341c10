"""Properties of every score function."""

import pytest
import torch
from torch.testing import assert_close

from tests.messages import messages
from tests.scores import HEADS, SCORED, SEEN, drawn, random_score
from xformer_kit.laws import LAWS, faults, tiny_config

BEYOND_SOFTMAX = [
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
NODES = [{"name": "softmax"}, *BEYOND_SOFTMAX]


def name_of(node):
    return " ".join(map(str, node.values()))


SPARSE = ("relu2", "top_k", "entmax")
each = pytest.mark.parametrize("node", NODES, ids=name_of)


@each
def test_only_a_sparse_score_gives_visible_keys_no_gradient(node):
    scores, score = SCORED.clone().requires_grad_(), random_score(node)
    (score(scores, SEEN) * drawn(*SCORED.shape)).sum().backward()
    assert bool((scores.grad[SEEN.expand_as(scores)] == 0).any()) == (node["name"] in SPARSE)


@each
def test_hidden_keys_have_weight_zero_and_do_not_change_the_others(node):
    weights = random_score(node)(SCORED, SEEN)
    assert weights.isfinite().all()
    assert (weights[..., 2, :] == 0).all()
    assert (weights[~SEEN.expand_as(weights)] == 0).all()
    for row in (0, 1, 3, 4):  # as if the hidden keys did not exist
        assert_close(
            weights[..., row, : row + 2],
            random_score(node)(SCORED[..., row : row + 1, : row + 2], None)[..., 0, :],
        )


@pytest.mark.parametrize(
    "node",
    # hard and gumbel have the gradient of a different function
    [node for node in NODES if node["name"] not in ("hard", "gumbel")],
    ids=name_of,
)
def test_gradients_equal_finite_differences(node):
    score, seen = random_score(node), SEEN[:, :4]

    def of(x):
        return score(x, seen)[..., [0, 1, 3, 4], :]

    assert torch.autograd.gradcheck(of, (drawn(1, HEADS, 5, 4).requires_grad_(),))


@each
@pytest.mark.parametrize(
    "law",
    ["causality", "documents", "padding", "cache", "nothing", "gradients", "precision", "start"],
)
def test_laws(law, node):
    position = "alibi" if law in ("cache", "padding") else "none"
    config = tiny_config(attn={"name": "multi_head", "score": node}, position=position)
    assert LAWS[law](config) is None


@pytest.mark.parametrize("node", BEYOND_SOFTMAX, ids=name_of)
def test_sdpa_refuses_scores_other_than_softmax_and_auto_takes_the_reference(node):
    from xformer_kit.inspect.describe import kernel_choices
    from xformer_kit.model.build import build_model
    from xformer_kit.plan import stacks

    config = tiny_config(attn={"name": "multi_head", "score": node})
    assert not faults(config)
    (refusal,) = messages(faults({**config, "kernel": {"name": "sdpa"}}))
    assert refusal.startswith("kernel: 'sdpa' cannot: attn.score is ")
    (choice,) = kernel_choices(config, stacks(config), build_model(config, 37))
    assert choice.kernel == "reference"
    assert any(f"not sdpa: attn.score is {node['name']}" in why for why in choice.why)


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
    assert_close(
        attend(SCORED, eye, eye)[0], random_score(node)(SCORED, None), atol=1e-6, rtol=1e-6
    )


def test_a_variant_differs_in_an_option_of_the_score_or_names_another():
    from xformer_kit.plan import stack_plan

    variants = {
        "capped": {"attn": {"score": {"softcap": 5.0}}},
        "sparse": {"attn": {"score": {"name": "entmax"}}},
    }
    shared = {"name": "multi_head", "score": {"name": "softmax", "sinks": True}}
    config = tiny_config(
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
