"""Dropout of weights on a CPU: equal to the equations, with the same draws forward and backward."""

import math

import pytest
import torch
from contexts import BOTH, HEADS, KV, WINDOW, context, inputs, tokens

from xformer_kit.kernel import KERNELS
from xformer_kit.kernel.blocks import QueryBlock
from xformer_kit.kernel.dropout import MAX_SCORES, ROWS, STEPS, attend, is_supported, split_block
from xformer_kit.mask import Causal, Full

FAR = torch.ones(9, 9).triu(1).bool()


def kept(rows: int, length: int, probability: float, blocks=None) -> torch.Tensor:
    """Which weights are kept (b, h, t, s), read from values that name their key."""
    zeros = torch.zeros(rows, HEADS, length, 2, dtype=torch.float64)
    names = torch.eye(length, dtype=torch.float64).expand(rows, KV, length, length)
    return attend(
        zeros, zeros[:, :KV], names, blocks or (QueryBlock(0, length, 0, length),), 1.0, probability
    )


def test_weights_are_dropped_one_by_one_and_the_others_grow():
    torch.manual_seed(1)
    length, p = 270, 0.3  # more than one block of queries
    weights = kept(2, length, p) * length
    share = 1 - round(p * STEPS) / STEPS
    torch.testing.assert_close(
        weights.unique(), torch.tensor([0.0, 1 / share], dtype=torch.float64)
    )
    dropped = (weights == 0).double()
    spread = math.sqrt(p * (1 - p) / dropped.numel())
    assert abs(dropped.mean() - p) < 4 * spread
    apart = dropped - dropped.mean()
    for moved in (
        apart.roll(1, 0),
        apart.roll(1, 1),
        apart.roll(1, 2),
        apart.roll(1, 3),
        apart.roll(4, 3),
    ):
        assert abs((apart * moved).mean()) < 4 * p * (1 - p) / math.sqrt(
            dropped.numel()
        )  # nothing is drawn twice


def test_draws_follow_torchs_generator():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first, second = kept(1, 9, 0.5), kept(1, 9, 0.5)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(kept(1, 9, 0.5), first)
    torch.manual_seed(8)
    assert not torch.equal(kept(1, 9, 0.5), first)


@pytest.mark.parametrize("mask", [Causal(), Full(), WINDOW, BOTH], ids=str)
@pytest.mark.parametrize(
    "real", [None, [13, -6, -1], [13, 6, 1]], ids=["plain", "at the start", "at the end"]
)
def test_it_drops_weights_of_the_reference(mask, real):
    """With the draws known, `reference` with them is the same function: outputs and gradients."""
    kernel, plain, key = KERNELS["sdpa"](block=4), KERNELS["reference"](), tokens(13, real=real)
    q, k, v = given = inputs(3, 13, 13)
    for position in ("none", "alibi"):
        seen, bare = (context(kind, mask, key, position=position) for kind in (kernel, plain))
        torch.manual_seed(5)
        out = kernel(*given, seen, 0.4, 0.3)
        names = torch.eye(13, dtype=torch.float64).expand(3, KV, 13, 13)
        torch.manual_seed(5)
        drops = kernel(q, k, names, seen, 0.4, 0.3).detach() == 0
        weights = plain.weights(q, k, bare, 0.4) * ~drops / (1 - round(0.3 * STEPS) / STEPS)
        expected = weights @ v.repeat_interleave(HEADS // KV, 1)
        rows = (
            torch.ones(3, 1, 13, 1, dtype=torch.bool)
            if key.real is None
            else key.real[:, None, :, None]
        )
        torch.testing.assert_close(out * rows, expected * rows)
        ours, theirs = (
            torch.autograd.grad((x * rows).square().sum(), given) for x in (out, expected)
        )
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(1, 4), (2, 1)])
def test_a_learned_bias_has_its_gradient(shape):
    q, k, v = inputs(2, 9, 9)

    def dropped(q, k, v, bias):
        torch.manual_seed(3)
        return attend(
            q, k, v, (QueryBlock(0, 9, 0, 9, table=bias.masked_fill(FAR, -math.inf)),), 0.4, 0.3
        )

    assert torch.autograd.gradcheck(
        dropped, (q, k, v, torch.randn(*shape, 9, 9).double().requires_grad_()), fast_mode=True
    )


def test_blocks_that_share_a_table_share_its_gradient():
    q, k, v = inputs(2, 8, 9)
    bias = torch.randn(1, HEADS, 4, 5).double().requires_grad_()

    def dropped(q, k, v, bias):
        torch.manual_seed(3)
        return attend(
            q,
            k,
            v,
            (QueryBlock(0, 4, 0, 5, table=bias), QueryBlock(4, 8, 4, 9, table=bias)),
            0.4,
            0.3,
        )

    assert torch.autograd.gradcheck(dropped, (q, k, v, bias), fast_mode=True)


def test_a_table_is_cut_once_for_all_blocks_that_share_it():
    count = ROWS + 9
    table, parts = torch.zeros(1, 1, count, 20), {}
    blocks = [QueryBlock(i * count, (i + 1) * count, 0, 20, table=table) for i in range(3)]
    assert len({id(part.table) for block in blocks for part in split_block(block, parts)}) == 2


def test_the_gradient_of_a_table_is_summed_in_single():
    q, k, v = (x.detach().float() for x in inputs(4, 16, 16))
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        table = torch.zeros(1, 1, 1, 16, dtype=dtype, requires_grad=True)
        torch.manual_seed(3)
        attend(
            q, k, v.abs(), (QueryBlock(0, 16, 0, 16, table=table),), 0.4, 0.3
        ).square().sum().backward()
        found.append(table.grad)
    assert found[0].dtype == torch.bfloat16 and torch.equal(found[0], found[1].bfloat16())


@pytest.mark.parametrize("size", [1.0, 1e4, 1e8, 1e12])
def test_weights_sum_to_one_for_the_gradient_too_however_large_the_scores(size):
    q, v = (torch.ones(1, 1, 64, 1, requires_grad=True) for _ in "qv")
    out = attend(q, torch.full((1, 1, 64, 1), size), v, (QueryBlock(0, 64, 0, 64),), 1.0, 0.1)
    (grad,) = torch.autograd.grad(out.sum(), v)
    torch.testing.assert_close(
        grad.sum(), out.sum()
    )  # both are the sum of the weights that are kept


def test_draws_do_not_depend_on_the_default_device():
    torch.manual_seed(7)
    first = kept(1, 9, 0.5)
    zeros, names = (
        first.new_zeros(1, HEADS, 9, 2),
        torch.eye(9, dtype=torch.float64).expand(1, KV, 9, 9),
    )
    torch.manual_seed(7)
    with torch.device("meta"):
        assert torch.equal(
            attend(zeros, zeros[:, :KV], names, (QueryBlock(0, 9, 0, 9),), 1.0, 0.5), first
        )


def test_heads_are_computed_together_as_far_as_they_fit():
    """Scores of several sizes around what is computed at once."""
    for rows, length in ((1, ROWS - 1), (1, ROWS + 1), (2, MAX_SCORES // (2 * ROWS) + 3)):
        weights = kept(rows, length, 0.5)
        assert ((weights == 0) | (weights > 0)).all() and 0.4 < (weights == 0).double().mean() < 0.6


def test_mixed_precision_computes_in_single():
    q, k, v = (x.detach().bfloat16() for x in inputs(2, 9, 9))
    torch.manual_seed(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attend(q, k, v, (QueryBlock(0, 9, 0, 9),), 0.4, 0.3)
    torch.manual_seed(3)
    single = attend(q.float(), k.float(), v.float(), (QueryBlock(0, 9, 0, 9),), 0.4, 0.3)
    assert out.dtype == torch.bfloat16 and torch.equal(out, single.bfloat16())


def test_dropping_nothing_or_everything_is_left_to_torch():
    assert [is_supported(p) for p in (0.0, 1e-9, 0.1, 1.0)] == [False, False, True, False]
    kernel = KERNELS["sdpa"]()
    assert (kernel(*inputs(1, 9, 9), context(kernel, Causal(), tokens(9)), 0.4, 1.0) == 0).all()
