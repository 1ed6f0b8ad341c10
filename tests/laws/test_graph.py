"""Models that compile whole, with one graph for all layers of a kind: each law of laws/graph.py
bites.
"""

import pytest
import torch
from breaking import bites, each, laws_of, registered
from torch import nn

from xformer_kit.attention import ATTENTIONS, HeadShape, MultiHead
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.laws import LAWS, tiny
from xformer_kit.placement import PLACEMENTS, Placement
from xformer_kit.position import POSITIONS, Position

pytestmark = pytest.mark.extended


class Reading(MLP):
    """Reads a value."""

    def forward(self, x, tokens):
        return super().forward(x * x.abs().max().item())


class Branching(MLP):
    """Takes a branch on a value."""

    def forward(self, x, tokens):
        return super().forward(x if x.abs().max() >= 0 else -x)


class Printing(MLP):
    """Leaves what torch traces."""

    def forward(self, x, tokens):
        print(end="")
        return super().forward(x)


class ReadingTables(Position):
    """Reads a value outside of the blocks."""

    def embed(self, x, tokens):
        return x + tokens.position.max().item()


class OfLayer(MLP):
    """A Python number of the layer."""

    def __init__(self, dim: int, depth: int):
        super().__init__(dim, width=8)
        self.depth = depth

    def forward(self, x, tokens):
        return super().forward(x * (self.depth + 2))


class FloatOfLayer(OfLayer):
    """Another one, which torch would make a symbol at the second layer."""

    def forward(self, x, tokens):
        return MLP.forward(self, x * (0.5 / (self.depth + 1)))


class ShapeOfLayer(MLP):
    """A parameter for each layer so far."""

    def __init__(self, dim: int, depth: int):
        super().__init__(dim, width=8)
        self.mine = nn.Parameter(torch.ones(depth + 1))

    def forward(self, x, tokens):
        return super().forward(x * self.mine.sum())


class OfView(MultiHead):
    """Reads the number of the layer from what it is given."""

    def forward(self, x, source, context, cache=None):
        return super().forward(x * (context.depth + 1), source, context, cache)


class Leaving(MultiHead):
    """Leaves something for later layers under a name of its layer."""

    def __init__(self, dim: int, norm, kernel, depth: int, *, heads: int = 6):
        super().__init__(dim, norm, kernel, depth, shape=HeadShape(heads))
        self.name = f"layer {depth}"

    def forward(self, x, source, context, cache=None):
        context.cross_layer_state[self.name] = x
        return super().forward(x + sum(context.cross_layer_state.values()), source, context, cache)


class Growing(Placement):
    """A stream for each group of sublayers."""

    @classmethod
    def streams(cls, options):
        return "streams"

    def forward(self, state, sublayers, total, tokens):
        return *state, state[-1] + total([f(state[-1]) for f in sublayers])

    @staticmethod
    def finish(state, norm):
        return norm(state[-1])


FFN, ATTN = {"ffn": "broken"}, {"attn": "broken"}
ARGUMENTS = [
    ("graph", FFNS, Reading, "item", FFN),
    ("graph", FFNS, Branching, "branching", FFN),
    ("graph", FFNS, Printing, "print", FFN),
    ("graph", POSITIONS, ReadingTables, "item", {"position": "broken"}),
    ("one graph", FFNS, OfLayer, "3 graphs for 1 kind of layers", FFN),
    ("one graph", FFNS, FloatOfLayer, "3 graphs for 1 kind of layers", FFN),
    ("one graph", FFNS, ShapeOfLayer, "3 graphs for 1 kind of layers", FFN),
    ("one graph", ATTENTIONS, OfView, "3 graphs for 1 kind of layers", ATTN),
    ("one graph", ATTENTIONS, Leaving, "3 graphs for 1 kind of layers", ATTN),
    ("one graph", PLACEMENTS, Growing, "3 graphs for 1 kind of layers", {"placement": "broken"}),
]


@each(ARGUMENTS)
def test_a_broken_component_is_caught(law, registry, component, match, composition):
    bites(law, registry, component, match, composition)


def test_every_law_is_seen_to_bite():
    assert laws_of("graph") == {law for law, *_ in ARGUMENTS}


class Named(Growing):
    breaks = {"one graph": "its state grows"}


def test_a_component_that_names_the_law_is_exempt_from_it_and_not_from_the_other():
    with registered(PLACEMENTS, Named):
        config = tiny(placement="broken")
        assert "its state grows" in LAWS["one graph"](config)
        assert LAWS["graph"](config) is None


class TensorOfLayer(OfLayer):
    """What the message proposes."""

    def __init__(self, dim: int, depth: int):
        super().__init__(dim, depth)
        self.register_buffer("factor", torch.tensor(0.5 / (depth + 1)), persistent=False)

    def forward(self, x, tokens):
        return MLP.forward(self, x * self.factor)


def test_a_tensor_of_the_layer_mends_it():
    with registered(FFNS, TensorOfLayer):
        assert LAWS["one graph"](tiny(ffn="broken")) is None


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        (
            {"decoder": {"pattern": ["base", "wide"], "variants": {"wide": {"ffn": {"width": 8}}}}},
            2,
        ),
        ({"model": "encoder_decoder"}, 2),
        ({"attn": "multi_head", "extra": {"value_residual": {}}}, 1),
    ],
)
def test_kinds_of_layers_and_the_first_of_what_crosses_them_have_graphs_of_their_own(
    changes, kinds
):
    assert LAWS["one graph"](tiny(**changes)) is None
    with registered(PLACEMENTS, Growing), pytest.raises(AssertionError, match=f"for {kinds} kind"):
        LAWS["one graph"](tiny(**changes, placement="broken"))
