"""The law of derivatives is broken by a gradient that is not that of the loss."""

import pytest
import torch
from breaking import broken_component_test, laws_in

from xformer_kit.ffn import FFNS, MLP
from xformer_kit.laws import LAWS, tiny_config


class Square(torch.autograd.Function):
    """x * x, with half of its derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x


class HalfGradient(MLP):
    def forward(self, x, tokens):
        return self.down(Square.apply(self.up(x))), {}


class DetachedNorm(MLP):
    def forward(self, x, tokens):
        h = self.up(x)
        return self.down(h / h.norm(dim=-1, keepdim=True).detach()), {}


class OnlyInTraining(MLP):
    def forward(self, x, tokens):
        h = self.up(x)
        return self.down(h + h.tanh().detach() if self.training else h + h.tanh()), {}


NAMED = (
    r"the gradients of decoder.1.[\w., ]*ffn.* not those of the loss: in a random direction that of"
)
ARGUMENTS = [
    ("derivative", FFNS, component, NAMED, {"ffn": "broken"})
    for component in (HalfGradient, DetachedNorm, OnlyInTraining)
]

test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("derivatives") == {law for law, *_ in ARGUMENTS}


@pytest.mark.parametrize("ffn", ["glu", "moe"])
def test_kinks_and_choices_are_no_faults(ffn):
    """Of an activation, and of experts."""
    options = {"activation": "relu"} if ffn == "glu" else {}
    LAWS["derivative"](tiny_config(ffn={"name": ffn, **options}))
