"""Who is chosen, what a choice weighs, and what evens the loads."""

import math

import pytest
import torch
from mpmath import mp
from torch.testing import assert_close

from xformer_kit.ffn import ROUTERS
from xformer_kit.ffn.router import order_of_sums
from xformer_kit.tensors import parameter_table
from xformer_kit.tensors.tokens import UNKNOWN, Tokens

EYE = torch.eye(4, dtype=torch.float64)  # logits are the token itself


def made(name, experts=4, top_k=2, **options):
    router = ROUTERS.create(
        {"name": name, **options}, dim=experts, experts=experts, top_k=top_k
    ).double()
    with torch.no_grad():
        router.weight.copy_(torch.eye(experts))
    return router


def weights(router, *tokens):
    """What each token gives each expert, (tokens, experts)."""
    x = torch.tensor(tokens, dtype=torch.float64)
    routes, _ = router(x[None], UNKNOWN)
    found = torch.zeros(len(x), router.experts, dtype=torch.float64)
    given = (
        routes.weight
        if routes.back is None
        else routes.weight.flatten()[routes.back.flatten().argsort()]
    )
    found[routes.token, routes.expert] = given
    return found.tolist()


def near(*values):
    return [pytest.approx(list(value)) for value in values]


LOGS = [math.log(n) for n in (1, 4, 2, 3)]  # softmax: 0.1, 0.4, 0.2, 0.3


def test_softmax_by_eye():
    assert weights(made("softmax", renormalise=False), LOGS) == near((0, 0.4, 0, 0.3))
    assert weights(made("softmax"), LOGS) == near((0, 4 / 7, 0, 3 / 7))
    assert weights(made("softmax", scale=2.0, top_k=4), LOGS) == near((0.2, 0.8, 0.4, 0.6))


def test_renormalised_is_the_softmax_of_the_chosen_alone():
    """So the order of top-k and softmax does not matter, with a bias too."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, 9, 6, generator=draw, dtype=torch.float64)
    router = made("softmax", experts=6, top_k=3, bias=True)
    with torch.no_grad():
        router.bias.copy_(torch.randn(6, generator=draw))
    logits = (x + router.bias)[0]
    highest = logits.topk(3)
    routes, _ = router(x, UNKNOWN)
    assert_close(routes.weight, highest.values.softmax(-1))
    assert_close(
        routes.weight,
        logits.softmax(-1).gather(-1, highest.indices)
        / logits.softmax(-1).topk(3).values.sum(-1, True),
    )


def test_sigmoid_by_eye():
    odds = [math.log(p / (1 - p)) for p in (0.1, 0.8, 0.2, 0.4)]
    assert weights(made("sigmoid", renormalise=False, scale=2.5), odds) == near((0, 2.0, 0, 1.0))
    assert weights(made("sigmoid"), odds) == near((0, 2 / 3, 0, 1 / 3))


@pytest.mark.parametrize(("score", "chosen"), [("max", (0, 1)), ("top2", (2, 3))])
def test_groups_by_eye(score, chosen):
    """0.9 and 0.1 against 0.6 and 0.5: the best expert of the one, the best pair of the other."""
    odds = [math.log(p / (1 - p)) for p in (0.9, 0.1, 0.6, 0.5)]
    (found,) = weights(made("sigmoid", groups=2, group_score=score), odds)
    assert tuple(i for i, w in enumerate(found) if w) == chosen


def test_the_correction_bias_chooses_and_does_not_weigh():
    router = made("softmax", renormalise=False, correction=0.0)
    router.correction_bias[0] = 1.0
    assert weights(router, LOGS) == near((0.1, 0.4, 0, 0))


def test_the_correction_bias_follows_the_sign_of_the_error():
    router = made("sigmoid", correction=0.01)
    router.after_step(torch.tensor([5, 3, 4, 4]))
    assert router.correction_bias.tolist() == near((-0.01, 0.01, 0, 0))[0]
    router.after_step(torch.tensor([0, 0, 0, 0]))  # a step that was left out
    assert router.correction_bias.tolist() == near((-0.01, 0.01, 0, 0))[0]
    held = made("sigmoid", correction=0.0)
    held.after_step(torch.tensor([5, 3, 4, 4]))
    assert held.correction_bias.abs().max() == 0


def test_a_correction_evens_the_loads():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4, 64, 4, generator=draw, dtype=torch.float64) + torch.tensor(
        [2.0, 1.0, 0.0, -1.0]
    )
    router = made("sigmoid", correction=0.01)
    first = router(x, UNKNOWN)[1]["load"]
    for _ in range(100):
        router.after_step(router(x, UNKNOWN)[1]["load"])
    last = router(x, UNKNOWN)[1]["load"]
    assert first.max() / first.double().mean() > 1.5
    assert last.max() / last.double().mean() < 1.05


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
@pytest.mark.parametrize("top_k", [1, 3])
def test_even_scores_cost_the_factor_itself(name, top_k):
    router = made(name, top_k=top_k, balance=0.3)
    x = torch.zeros(2, 5, 4, dtype=torch.float64)
    assert_close(router(x, UNKNOWN)[1]["loss"].item(), 0.3)


def test_the_balancing_loss_is_that_of_transformers():
    """Theirs counts each of a token's choices as a whole one, so it is top_k times as large."""
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    draw = torch.Generator().manual_seed(0)
    x, real = (
        torch.randn(3, 7, 4, generator=draw),
        torch.arange(7) < torch.tensor([7, 5, 2])[:, None],
    )
    router = made("softmax", balance=1.0).float()
    for mask in (None, real):
        theirs = mixtral.load_balancing_loss_func(
            (x.flatten(0, 1),), 4, 2, None if mask is None else mask.long()
        )
        assert_close(2 * router(x, Tokens(real=mask))[1]["loss"], theirs)


def test_the_z_loss_is_its_formula():
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for name, more in (("softmax", {"balance": 0.0}), ("expert_choice", {})):
        report = made(name, z_loss=0.1, **more)(x, UNKNOWN)[1]
        assert_close(report["loss"], 0.1 * x.exp().sum(-1).log().square().mean())


def test_experts_choose_their_best_tokens():
    """2 experts, each takes 1 * 4 / 2 = 2 of 4 tokens, row by row; a row with 3 real tokens gives 2
    too, one of 1 gives it.
    """
    router = made("expert_choice", experts=2, top_k=1)
    odds = [math.log(p / (1 - p)) for p in (0.9, 0.8, 0.3, 0.6)]
    row = [[z, 0.0] for z in odds]  # softmax: 0.9 and 0.1, 0.8 and 0.2, ...
    assert weights(router, *row) == near((0.9, 0), (0.8, 0), (0, 0.7), (0, 0.4))
    x = torch.tensor([row, row, row], dtype=torch.float64)
    real = torch.arange(4) >= torch.tensor([0, 1, 3])[:, None]
    routes, report = router(x, Tokens(real=real))
    assert report["load"].tolist() == [2 + 2 + 1] * 2
    found = torch.zeros(12, 2, dtype=torch.float64).index_put(
        (routes.token, routes.expert), routes.weight, accumulate=True
    )
    assert found[4:].tolist() == near(
        (0, 0), (0.8, 0), (0, 0.7), (0.6, 0.4), (0, 0), (0, 0), (0, 0), (0.6, 0.4)
    )


def test_every_choice_of_a_token_has_its_row():
    x = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    routes, report = made("softmax", experts=6, top_k=3)(x, UNKNOWN)
    assert (
        routes.groups.counts.sum() == len(routes.token) == len(routes.expert) == 2 * 9 * 3
    )  # none is dropped
    assert routes.expert.tolist() == sorted(routes.expert.tolist())
    assert routes.token[routes.back].tolist() == [[token] * 3 for token in range(18)]
    assert (
        routes.groups.counts.tolist()
        == report["load"].tolist()
        == routes.expert.bincount(minlength=6).tolist()
    )


def test_routes_are_computed_in_fp32_under_autocast():
    router = made("softmax").float()
    x = torch.randn(1, 50, 4, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        routes, _ = router(x, UNKNOWN)
    assert routes.weight.dtype == torch.float32
    assert torch.equal(routes.weight, router(x, UNKNOWN)[0].weight)


NULL = [
    ("softmax", 1, 1, {}, True),
    ("softmax", 1, 1, {"renormalise": False}, True),
    ("softmax", 1, 1, {"z_loss": 0.1}, False),
    ("softmax", 4, 1, {"balance": 0.0}, True),
    ("softmax", 4, 1, {}, False),
    ("softmax", 4, 2, {"balance": 0.0}, False),
    ("softmax", 4, 1, {"balance": 0.0, "renormalise": False}, False),
    ("sigmoid", 1, 1, {}, True),
    ("sigmoid", 1, 1, {"renormalise": False}, False),
]


@pytest.mark.parametrize(("name", "experts", "top_k", "options", "null"), NULL)
def test_a_router_that_learns_nothing_says_so(name, experts, top_k, options, null):
    router = made(name, experts, top_k, **options)
    x = torch.randn(2, 5, experts, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    routes, report = router(x, UNKNOWN)
    loss = (routes.weight * torch.arange(1, routes.weight.numel() + 1).view_as(routes.weight)).sum()
    (loss + report.get("loss", 0)).backward()
    assert (
        (router.weight.grad.abs().max().item() < 1e-12)
        == null
        == parameter_table(router)["weight"].zero_gradient
    )


# A capacity.


def kept_by_hand(chosen, experts, top_k, capacity, lengths):
    """Which choices find room, row by row and token by token: [(row, token, choice)]."""
    found = []
    for row, length in enumerate(lengths):
        room = [max(1, math.ceil(capacity * top_k * length / experts))] * experts
        for token in range(length):
            for choice, expert in enumerate(chosen[row][token]):
                if room[expert]:
                    room[expert] -= 1
                    found.append((row, token, choice))
    return found


@pytest.mark.parametrize("capacity", [0.3, 1.0, 1.25])
@pytest.mark.parametrize("lengths", [(7, 7, 7), (7, 5, 2)])
def test_tokens_beyond_a_capacity_are_dropped(capacity, lengths):
    x = torch.randn(
        3, 7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ) + torch.tensor([1.0, 0, 0, 0])
    router = made("softmax", capacity=capacity, renormalise=False)
    real = None if min(lengths) == 7 else torch.arange(7) < torch.tensor(lengths)[:, None]
    routes, report = router(x, Tokens(real=real))
    expected, highest = torch.zeros(21, 4, dtype=torch.float64), x.softmax(-1).topk(2)
    accepted = kept_by_hand(highest.indices.tolist(), 4, 2, capacity, lengths)
    for row, token, choice in accepted:
        expected[7 * row + token, highest.indices[row, token, choice]] = highest.values[
            row, token, choice
        ]
    found = torch.zeros_like(expected).index_put(
        (routes.token, routes.expert), routes.weight, accumulate=True
    )
    assert_close(found, expected)
    assert (
        report["dropped"]
        == 2 * sum(lengths) - len(accepted)
        == report["load"].sum() - len(accepted)
    )
    assert len(set(routes.groups.counts.tolist())) == 1


def test_a_capacity_by_eye():
    """All four tokens choose the first of two experts, which computes ceil(1 * 1 * 4 / 2) = 2."""
    router = made("softmax", experts=2, top_k=1, capacity=1.0)
    routes, report = router(torch.tensor([[[1.0, 0.0]] * 4], dtype=torch.float64), UNKNOWN)
    assert [
        (t, w) for t, w in zip(routes.token.tolist(), routes.weight.tolist(), strict=True) if w
    ] == [
        (0, 1.0),
        (1, 1.0),
    ]
    assert report["load"].tolist() == [4, 0]
    assert report["dropped"] == 2


def test_a_capacity_is_of_training_alone():
    x = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    limited, free = made("sigmoid", capacity=0.5).eval(), made("sigmoid").eval()
    assert_close(limited(x, UNKNOWN)[0].weight, free(x, UNKNOWN)[0].weight)
    assert "dropped" not in limited(x, UNKNOWN)[1]


def test_what_a_capacity_breaks_is_said_with_it():
    assert ROUTERS.broken_laws({"name": "softmax"}) == {}
    assert list(ROUTERS.broken_laws({"name": "softmax", "capacity": 1.0})) == ["documents"]


def test_sums_of_sigmoids_that_rounding_makes_equal_are_told_apart():
    """300 and -30 is more than 300 and -50, and both more than 20 and -300, by parts that a
    float loses when 1 is added.
    """
    pairs = [[300.0, -30], [300, -50], [300, -80], [20, -300], [18, -40], [400, 300], [400, 200]]
    with mp.workdps(300):
        scores = [
            sum(1 / (1 + mp.e ** -mp.mpf(x)) for x in pair) - sum(x >= 0 for x in pair)
            for pair in pairs
        ]
        order = sorted(range(len(pairs)), key=lambda i: scores[i])
    for dtype in (torch.float32, torch.float64):
        assert order_of_sums(torch.tensor(pairs, dtype=dtype)).argsort().tolist() == order
