"""The loss that balances experts takes the loads of the last step."""

import torch
from torch.testing import assert_close

from xformer_kit.ffn.balance import BalanceLoss

DOUBLE = torch.float64


def test_the_loss_is_the_formula_with_the_loads_of_the_last_step():
    draw = torch.Generator().manual_seed(0)
    share = torch.randn(7, 4, generator=draw, dtype=DOUBLE).softmax(-1)
    real, now = torch.tensor([1, 1, 0, 1, 1, 1, 1], dtype=DOUBLE), torch.tensor([3, 3, 4, 2])
    loss = BalanceLoss(4, 0.3).double()
    mean = share[real > 0].mean(0)
    for loads in ([1, 5, 0, 6], [2, 2, 7, 1]):
        loss.after_step(torch.tensor(loads))
        f = torch.tensor(loads, dtype=DOUBLE) / 12
        assert_close(loss(share, real, now), 0.3 * 4 * (f * mean).sum())
    loss.after_step(torch.zeros(4, dtype=torch.int64))  # of a step that was skipped
    assert_close(loss(share, real, now), 0.3 * 4 * (f * mean).sum())


def test_without_a_step_it_takes_its_own_loads_and_before_steps_even_ones():
    share, real = torch.eye(4, dtype=DOUBLE)[[0, 0, 1]], torch.ones(3, dtype=DOUBLE)
    loss = BalanceLoss(4, 1.0).double()
    assert_close(loss(share, real, torch.tensor([2, 1, 0, 0])).item(), 4 * (4 / 9 + 1 / 9))
    loss.before_steps()
    assert_close(loss(share, real, torch.tensor([2, 1, 0, 0])).item(), 1.0)
    loss.after_step(torch.tensor([3, 0, 0, 0]))
    loss.before_steps()  # of a run that is resumed: nothing changes
    assert loss.relative_load.tolist() == [4, 0, 0, 0]
