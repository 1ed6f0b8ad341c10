"""A component whose output has another shape is named before the output is used."""

import pytest
import torch
from torch import nn

from xformer_kit import ConfigError
from xformer_kit.attention import ATTENTIONS, Attention
from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.objective import Objective, summed_loss

HOOKS = {
    "embed": lambda self, x, layer: x[:, 1:],
    "before_layer": lambda self, state, layer: ((state[0][:, 1:],), {}),
    "after_layer": lambda self, state, layer: ((state[0][..., 1:],), {}),
    "final": lambda self, state, layer: None,
    "sublayer_output": lambda self, name, h, layer: h[:1],
    "values": lambda self, v, x, layer: v[:, :, 1:],
    "projected": lambda self, name, part, y, layer: y[:, 1:],
}


@pytest.fixture(autouse=True)
def forget_registered_components():
    yield
    EXTRAS.forget(__name__)
    ATTENTIONS.forget(__name__)


def hidden(**changes):
    case = Composition(tiny_config(**changes), "")
    return case.hidden(case.model())


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook(hook):
    EXTRAS.register("faulty")(type("Faulty", (Extra,), {hook: HOOKS[hook], "__init__": no_options}))
    with pytest.raises(ConfigError, match=f"^extra.faulty: '{hook}' must return the shape of"):
        hidden(extra={"faulty": {}})


def no_options(self, dim: int):
    super(Extra, self).__init__()


def test_a_sublayer_in_a_hook_that_wraps_it():
    def wrap(self, name, branch, layer):
        return lambda x: branch(x)[:, 1:] if name == "ffn" else branch(x)

    EXTRAS.register("faulty")(type("Faulty", (Extra,), {"wrap": wrap, "__init__": no_options}))
    with pytest.raises(ConfigError, match=r"^ffn: 'forward' must .* 13, 36\); got \(3, 12, 36"):
        hidden(extra={"faulty": {}})


def test_an_attention_without_a_cache_is_trained_and_not_generated_with():
    @ATTENTIONS.register("mean_of_past")
    class MeanOfPast(Attention):
        def __init__(self, dim: int):
            super().__init__()
            self.v = nn.Linear(dim, dim)

        def forward(self, x, source, context, cache=None):
            return self.v(x).cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]

    case = Composition(tiny_config(attn="mean_of_past", position="none"), "")
    model = case.model()
    assert case.hidden(model).isfinite().all()
    with pytest.raises(ConfigError, match=r"^attn: generation needs a method cache\(rows, "):
        case.empty_cache(model)


def test_a_loss_that_is_no_sum():
    class Mean(Objective):
        def loss(self, model, batch):
            return torch.zeros(())

    with pytest.raises(ConfigError, match=r"'Mean.loss' must return \(sum, count, report\); got T"):
        summed_loss(Mean(), None, {})
