"""The law of xformer_kit/laws/parameters.py is broken by components that state what is not so."""

from breaking import broken_component_test

from xformer_kit.attention import ATTENTIONS, MultiHead
from xformer_kit.ffn import FFNS, MLP
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
    parameter_info = {"q.bias": vector("heads*head_dim", bias=True, shared=True)}


test_a_false_statement_breaks_the_law = broken_component_test(
    [
        ("parameters", FFNS, WrongSize, r"up.weight has the shape \(19, 36\)", {"ffn": "broken"}),
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
