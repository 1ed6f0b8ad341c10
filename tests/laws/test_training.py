"""Each law of xformer_kit/laws/training.py is broken by a faulty component."""

import random

import numpy as np
import pytest
import torch
from breaking import TWO, broken_component_test, laws_in, registered
from torch import nn
from torch.nn import functional as F

from xformer_kit.ffn import FFNS, MLP
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.training import DROPOUT, with_dropout
from xformer_kit.norm import NORMS
from xformer_kit.registry import Fault


class MeanInTraining(MLP):
    """Adds the mean over the whole sequence, only in training."""

    def forward(self, x, tokens):
        return super().forward(x + x.mean(1, keepdim=True) if self.training else x)


class DetachedMeanInTraining(MLP):
    """Adds it without a gradient."""

    def forward(self, x, tokens):
        return super().forward(x + x.detach().mean(1, keepdim=True) if self.training else x)


class MeanInDropout(MLP):
    """Replaces what is dropped by the mean over the whole sequence."""

    def forward(self, x, tokens):
        h, report = super().forward(x)
        kept = F.dropout(torch.ones_like(h), 0.2, self.training) > 0
        return h.where(kept, h.mean(1, keepdim=True)), report


class PythonRandom(MLP):
    def forward(self, x, tokens):
        return super().forward(x * random.uniform(0.9, 1.1) if self.training else x)


class NumpyRandom(MLP):
    def forward(self, x, tokens):
        return super().forward(x * np.random.uniform(0.9, 1.1) if self.training else x)


class OwnGenerator(MLP):
    """Draws from a torch.Generator of its own, in training or always."""

    only_in_training = True

    def __init__(self, dim: int):
        super().__init__(dim)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x, tokens):
        if self.training or not self.only_in_training:
            x = x + torch.randn(x.shape, generator=self.generator).to(x)
        return super().forward(x)


class OwnGeneratorAlways(OwnGenerator):
    only_in_training = False


class SameNumbers(MLP):
    """Drops the same channels in every step."""

    def forward(self, x, tokens):
        fixed = torch.Generator().manual_seed(0)
        return super().forward(
            x + torch.rand(x.shape, generator=fixed).to(x) if self.training else x
        )


class CountsCalls(MLP):
    def __init__(self, dim: int):
        super().__init__(dim)
        self.calls = 0

    def forward(self, x, tokens):
        self.calls += self.training
        return super().forward(x * (1 + self.calls))


class SetsSeed(nn.Module):
    """Seeds torch's global generator in each forward."""

    def __init__(self, dim: int):
        super().__init__()

    def forward(self, x):
        torch.manual_seed(0)
        return x + torch.rand_like(x) if self.training else x


class DropsInEvaluation(MLP):
    """Forgets `self.training`."""

    def forward(self, x, tokens):
        return super().forward(F.dropout(x, 0.2))


class DropsInGeneration(MLP):
    """Forgets it for single tokens."""

    def forward(self, x, tokens):
        return super().forward(F.dropout(x, 0.2, self.training or x.shape[1] == 1))


class GrowsEachStep(MLP):
    """Has a factor that each step increases."""

    persistent = True

    def __init__(self, dim: int):
        super().__init__(dim)
        self.register_buffer("factor", torch.ones(()), persistent=self.persistent)

    def forward(self, x, tokens):
        return super().forward(x * self.factor)[0], {"rows": self.factor.detach()}

    def after_step(self, report):
        self.factor += 0.1


class ForgetsFactor(GrowsEachStep):
    persistent = False


class CountsSteps(GrowsEachStep):
    """Counts steps in an attribute that is not saved."""

    steps = 0

    def after_step(self, report):
        self.steps += 1
        self.factor.fill_(1 + 0.1 * self.steps)


BROKEN = {"ffn": "broken"}
BROKEN_SOURCE = TWO | {"encoder": {"ffn": "broken", "mask": {"name": "causal"}}}
OF_ITS_OWN = "randn draws from a generator of its own"
ARGUMENTS = [
    ("causality in training", FFNS, MeanInTraining, "in training the output at 0 has a", BROKEN),
    ("causality in training", FFNS, MeanInDropout, "in training the output at", BROKEN),
    ("causality in training", FFNS, DetachedMeanInTraining, "in training token 6 changes", BROKEN),
    ("randomness", FFNS, PythonRandom, "draws from Python's `random`, which a run", BROKEN),
    ("randomness", FFNS, NumpyRandom, "draws from numpy's global generator, which", BROKEN),
    ("randomness", FFNS, OwnGenerator, OF_ITS_OWN, BROKEN),
    ("randomness", FFNS, OwnGenerator, OF_ITS_OWN, BROKEN_SOURCE),
    ("randomness", FFNS, SameNumbers, "rand draws the same numbers from each state", BROKEN),
    ("randomness", FFNS, CountsCalls, "something counts its calls, or draws from a", BROKEN),
    ("randomness", NORMS, SetsSeed, "sets the state of torch's global", {"norm": "broken"}),
    ("evaluation", FFNS, DropsInEvaluation, "something draws from torch's global", BROKEN),
    ("evaluation", FFNS, DropsInGeneration, "something draws from torch's global", BROKEN),
    ("evaluation", FFNS, OwnGeneratorAlways, "the logits of two calls differ", BROKEN),
    ("resume", FFNS, ForgetsFactor, "decoder.0.ffn.factor is another one after 2", BROKEN),
    ("resume", FFNS, CountsSteps, "decoder.0.ffn.factor is another one after 2", BROKEN),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("training") == {law for law, *_ in ARGUMENTS}


@pytest.mark.parametrize("law", sorted(laws_in("training")))
def test_a_component_that_draws_and_counts_steps_keeps_the_laws(law):
    class Draws(GrowsEachStep):
        def forward(self, x, tokens):
            return super().forward(F.dropout(x, 0.1, self.training), tokens)

    FFNS.register("draws")(Draws)
    try:
        assert LAWS[law](tiny_config(ffn="draws", extra={"stochastic_depth": {}})) is None
    finally:
        FFNS.forget(Draws.__module__)


def test_every_dropout_is_above_zero():
    expert = {"name": "mlp"}
    config = with_dropout(tiny_config(ffn={"name": "moe", "expert": expert}))
    assert config["model"]["dropout"] == config["attn"]["dropout"] == DROPOUT
    assert config["ffn"]["expert"] == expert | {"dropout": DROPOUT}


def test_only_the_models_dropout_is_above_zero_if_a_component_refuses_its_own():
    class NoDropout(MLP):
        @classmethod
        def check(cls, options, context):
            if options.dropout:
                yield Fault("dropout", "must be 0", got=options.dropout, fix="Set 0.")

        def __init__(self, dim: int, *, dropout: float = 0.0):
            super().__init__(dim)

    with registered(FFNS, NoDropout):
        config = with_dropout(tiny_config(ffn="broken"))
    assert (config["model"]["dropout"], config["ffn"]["dropout"]) == (DROPOUT, 0.0)
