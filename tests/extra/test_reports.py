"""Losses and figures of extras and placements."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.placement import PLACEMENTS, Placement
from xformer_kit.tensors.tokens import Tokens


class SizePenalty(Extra):
    """The sum over layers of the mean square of the stream, as a loss and as a figure."""

    def after_layer(self, state, layer):
        size = state[0].square().mean() + layer.memory.get("size", 0.0)
        return state, {"size": size}

    def report(self, layer):
        size = layer.memory["size"]
        return {"loss": 0.1 * size, "size": size.detach()}

    def after_step(self, report):
        self.last = report["size"]


class Scaled(Placement):
    """x + g f(norm(x)) with a learned g, whose square is a loss."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, state, f, tokens):
        f.report["loss"] = self.gain.square()
        f.report["gain"] = self.gain.detach()
        return (state[0] + self.gain * f(self.norm(state[0])),)


@pytest.fixture(autouse=True)
def registered():
    EXTRAS.register("size_penalty")(SizePenalty)
    PLACEMENTS.register("scaled")(Scaled)
    yield
    EXTRAS.forget(__name__)
    PLACEMENTS.forget(__name__)


def test_losses_are_summed_and_figures_have_the_path_of_their_module():
    case = Composition(tiny_config(placement="scaled", extra={"size_penalty": {}}), "")
    model, states = case.model(), []
    model.decoder.observers.append(lambda depth, state: states.append(state[0]))
    _, report = model.hidden(Tokens(ids=case.ids))
    size = sum(x.square().mean() for x in states)
    gains = {n: p for n, p in model.named_parameters() if n.endswith(".gain")}
    assert_close(report["loss"], 0.1 * size + sum(g.square() for g in gains.values()))
    assert {name for name in report if name != "loss"} == {"decoder.extra.size_penalty.size"} | set(
        gains
    )
    report["loss"].backward()
    assert all(gain.grad != 0 for gain in gains.values())
    model.after_step({name: value for name, value in report.items() if name != "loss"})
    assert_close(model.decoder.extra["size_penalty"].last, size.detach())
    figures = model.figures({name: value.detach() for name, value in report.items()})
    assert figures.keys() == report.keys()


@pytest.mark.extended
def test_laws_of_graphs_and_devices_are_kept():
    config = tiny_config(placement="scaled", extra={"size_penalty": {}})
    for name in ("graph", "one graph", "device", "cache", "gradients"):
        LAWS[name](config)
