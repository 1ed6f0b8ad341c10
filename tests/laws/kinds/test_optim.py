"""Each law of optimizers is broken by a faulty optimizer."""

import pytest
import torch
from kind_laws import assert_keeps_all, broken_kind_test

from xformer_kit.laws.kinds import KIND_LAWS


class SignDescent(torch.optim.Optimizer):
    """A good one: w <- w - lr (sign(m) + weight_decay w), m the running mean of gradients."""

    def __init__(self, params, *, lr: float = 1e-3, weight_decay: float = 0.1):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, group)

    def update(self, p, group):
        state = self.state[p]
        mean = state.setdefault("mean", torch.zeros_like(p))
        mean.lerp_(p.grad, 0.1)
        p.sub_(group["lr"] * (mean.sign() + self.decay(group) * p))

    def decay(self, group):
        return group["weight_decay"]


class OnlyMatrices(SignDescent):
    def __init__(self, params, *, lr: float = 1e-3, weight_decay: float = 0.1):
        super().__init__(params)
        del self.param_groups[1:]


class RateOfItsOwn(SignDescent):
    def __init__(self, params, *, lr: float = 1e-3, weight_decay: float = 0.1):
        super().__init__(params, lr=0.02)


class IgnoresSchedule(SignDescent):
    def update(self, p, group):
        super().update(p, {**group, "lr": self.defaults["lr"]})


class DoesNothing(SignDescent):
    def update(self, p, group):
        pass


class DecaysGains(SignDescent):
    def decay(self, group):
        return 0.1


class DecaysAll(SignDescent):
    """Decays parameters that should not, by the option."""

    def __init__(self, params, *, lr: float = 1e-3, weight_decay: float = 0.1):
        super().__init__(params, lr=lr, weight_decay=weight_decay)
        for group in self.param_groups:
            group["weight_decay"] = weight_decay


class IgnoresDecay(SignDescent):
    def decay(self, group):
        return 0.0


class GrowsWeights(SignDescent):
    """Has a wrong sign."""

    def decay(self, group):
        return -group["weight_decay"]


class ForgetsState(SignDescent):
    """Holds its means where state_dict does not find them."""

    def __init__(self, params, *, lr: float = 1e-3, weight_decay: float = 0.1):
        super().__init__(params, lr=lr, weight_decay=weight_decay)
        self.means = {}

    def update(self, p, group):
        mean = self.means.setdefault(p, torch.zeros_like(p))
        mean.lerp_(p.grad, 0.1)
        p.sub_(group["lr"] * mean)


class DividesByZero(SignDescent):
    def update(self, p, group):
        p.sub_(group["lr"] * p.grad / p.grad.norm())


ARGUMENTS = [
    ("groups", OnlyMatrices, "is in 0 groups"),
    ("groups", RateOfItsOwn, "a group has the rate 0.02, and 0.02 with twice the option lr"),
    ("rate", IgnoresSchedule, "a step with a rate of 0 changes embed.weight"),
    ("rate", DoesNothing, r"a step with the rates \[0.001, 0.001\] changes nothing"),
    ("decay", DecaysGains, "a step without gradient and decay changes"),
    ("decay", DecaysAll, "decays, although it is no matrix of weights"),
    ("decay", IgnoresDecay, "the option weight_decay has no effect"),
    ("decay", GrowsWeights, "embed.weight grows in a step without gradient"),
    ("state", ForgetsState, "after loading its state_dict, the next step of embed.weight differs"),
    ("finite", DividesByZero, "is not finite after gradients of size 0"),
]

test_a_broken_optimizer_is_caught = broken_kind_test("optim", ARGUMENTS)


def test_every_law_catches_a_broken_optimizer():
    assert KIND_LAWS["optim"].keys() == {law for law, *_ in ARGUMENTS}


def test_an_optimizer_keeps_all():
    assert_keeps_all("optim", SignDescent)


@pytest.mark.extended
def test_a_rate_that_is_another_option_is_kept():
    class TwoRates(SignDescent):
        def __init__(self, params, *, lr: float = 1e-3, gains_lr: float = 0.02):
            super().__init__(params, lr=lr)
            self.param_groups[1]["lr"] = gains_lr

    assert_keeps_all("optim", TwoRates)
