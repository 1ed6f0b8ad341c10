"""Products of groups of rows are the products, one by one."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from xformer_kit.ffn.grouped import Groups, grouped_linear, grouped_outer, grouped_product

COUNTS = [3, 0, 5, 1, 0]


def given(into, out, dtype=torch.float64):
    draw = torch.Generator().manual_seed(0)
    shapes = ((9, into), (5, out, into), (9, out))
    return *(
        torch.randn(shape, generator=draw, dtype=dtype).requires_grad_() for shape in shapes
    ), torch.tensor(COUNTS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("into", "out"), [(7, 3), (8, 16)]
)  # the second as torch's own kernel takes them
def test_each_group_goes_through_its_matrix(into, out, dtype):
    x, weight, y, counts = given(into, out, dtype)
    rows, others = x.split(COUNTS), y.split(COUNTS)
    expected = torch.cat([part @ matrix.T for part, matrix in zip(rows, weight, strict=True)])
    got = grouped_linear(x, weight, Groups.of(counts))
    assert_close(got, expected)
    assert ("Mm" in got.grad_fn.name()) == (dtype == torch.float32 and into == 8)
    assert_close(
        grouped_outer(y, x, counts),
        torch.stack([b.T @ a for a, b in zip(rows, others, strict=True)]),
    )
    draw = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((out * draw).sum(), (x, weight)) for out in (got, expected))
    assert_close(ours, theirs)
    assert ours[1][1].abs().max() == 0 == ours[1][4].abs().max()


def test_they_keep_the_rules_of_torchs_operations():
    x, weight, y, counts = given(4, 3)
    assert torch.autograd.gradcheck(grouped_product, (x, weight, counts))
    assert torch.autograd.gradgradcheck(grouped_product, (x, weight, counts))
    assert torch.autograd.gradcheck(grouped_outer, (y, x, counts))
    for op, args in ((grouped_product, (x, weight, counts)), (grouped_outer, (y, x, counts))):
        torch.library.opcheck(
            op, args, test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_their_flops_are_those_of_their_rows(dtype):
    x, weight, _, counts = given(8, 16, dtype)
    with FlopCounterMode(display=False) as counter:
        grouped_linear(x, weight, Groups.of(counts)).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 9 * 8 * 16
