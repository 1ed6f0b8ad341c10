"""The law of xformer_kit/laws/parameters.py is broken by components that state what is not so."""

import pytest
from breaking import broken_component_test, registered
from torch import nn

from xformer_kit.attention import ATTENTIONS, MultiHead
from xformer_kit.ffn import FFN, FFNS, MLP
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.tensors import hidden, vector


class WrongSize(MLP):
    parameter_info = {"up": hidden("dim", "width")}


class WrongNumberOfAxes(MLP):
    parameter_info = {"up": hidden("width")}


class NotHeads(MultiHead):
    parameter_info = {"q": hidden("kv_heads*head_dim", "dim")}


class UpWrites(MLP):
    parameter_info = {"up": hidden("width", "dim", writes=True)}


class NothingWrites(MLP):
    parameter_info = {"down": hidden("dim", "width")}


class BiasOfHeadsIsShared(MultiHead):
    parameter_info = {"q.bias": vector("heads*head_dim", bias=True, shared_by_heads=True)}


test_a_false_statement_breaks_the_law = broken_component_test(
    [
        (
            "parameters",
            FFNS,
            WrongSize,
            r"up.weight has the shape \(19, 36\)",
            {"ffn": {"name": "broken", "width": 19}},
        ),
        ("parameters", FFNS, WrongNumberOfAxes, r"not \('width',\)", {"ffn": "broken"}),
        ("parameters", ATTENTIONS, NotHeads, "q.weight has the shape", {"attn": "broken"}),
        ("parameters", FFNS, UpWrites, "up.weight states that it writes", {"ffn": "broken"}),
        ("parameters", FFNS, NothingWrites, "does not state that it writes", {"ffn": "broken"}),
        (
            "parameters",
            ATTENTIONS,
            BiasOfHeadsIsShared,
            "q.bias, .* states that heads share it",
            {"attn": {"name": "broken", "bias": True}},
        ),
    ]
)


@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.parametrize("of", ["input", "output", "both"])
@pytest.mark.parametrize("name", ["head", "element", "projected"])
def test_every_form_of_a_gate_is_described(name, of, rank):
    gate = {"name": name, "of": of} | ({} if name == "head" or rank is None else {"rank": rank})
    assert LAWS["parameters"](tiny_config(attn={"name": "multi_head", "gate": gate})) is None


class OwnNames(FFN):
    """Its matrices have names that no class describes."""

    def __init__(self, dim: int):
        super().__init__()
        self.first, self.last = nn.Linear(dim, 7), nn.Linear(7, dim)

    def forward(self, x, tokens):
        return self.last(self.first(x).relu()), {}


def test_a_component_that_states_nothing_keeps_the_law():
    with registered(FFNS, OwnNames):
        assert LAWS["parameters"](tiny_config(ffn="broken")) is None
