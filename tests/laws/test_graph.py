"""Each law of xformer_kit/laws/graph.py is broken by a faulty component."""

import inspect
import re

import pytest
import torch
from breaking import broken_component_test, laws_in, registered
from torch import nn

from xformer_kit.attention import ATTENTIONS, HeadShape, MultiHead
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.placement import PLACEMENTS, Placement
from xformer_kit.position import POSITIONS, Position

pytestmark = pytest.mark.extended


class ReadsValue(MLP):
    """Reads a tensor value."""

    def forward(self, x, tokens):
        return super().forward(x * x.abs().max().item())


class BranchesOnValue(MLP):
    """Branches on a tensor value."""

    def forward(self, x, tokens):
        return super().forward(x if x.abs().max() >= 0 else -x)


class Prints(MLP):
    """Calls a function that torch does not trace."""

    def forward(self, x, tokens):
        print(end="")
        return super().forward(x)


class DetachesCompiled(MLP):
    """Passes no gradient to earlier layers if it is compiled."""

    def forward(self, x, tokens):
        return super().forward(x.detach() if torch.compiler.is_compiling() else x)


class ShiftedCompiled(MLP):
    """Adds a number if it is compiled, which changes the output, but the gradients little."""

    def forward(self, x, tokens):
        h, report = super().forward(x)
        return h + 0.1 if torch.compiler.is_compiling() else h, report


class ReadsValueInTables(Position):
    """Reads a tensor value outside of the blocks."""

    def embed(self, x, tokens):
        return x + tokens.position.max().item()


class IntOfLayer(MLP):
    """Multiplies by an integer that depends on the layer."""

    def __init__(self, dim: int, depth: int):
        super().__init__(dim, width=8)
        self.depth = depth

    def forward(self, x, tokens):
        return super().forward(x * (self.depth + 2))


class FloatOfLayer(IntOfLayer):
    """Multiplies by a float of the layer, which torch could make a symbol at the second layer."""

    def forward(self, x, tokens):
        return MLP.forward(self, x * (0.5 / (self.depth + 1)))


class ShapeOfLayer(MLP):
    """Has a parameter whose shape depends on the layer."""

    def __init__(self, dim: int, depth: int):
        super().__init__(dim, width=8)
        self.mine = nn.Parameter(torch.ones(depth + 1))

    def forward(self, x, tokens):
        return super().forward(x * self.mine.sum())


class DepthOfContext(MultiHead):
    """Reads the number of the layer from the context."""

    def forward(self, x, source, context, cache=None):
        return super().forward(x * (context.depth + 1), source, context, cache)


class StateNamedByLayer(MultiHead):
    """Adds cross-layer state under a name that depends on the layer."""

    def __init__(self, dim: int, norm, kernel, depth: int, *, heads: int = 6):
        super().__init__(dim, norm, kernel, depth, shape=HeadShape(heads))
        self.name = f"layer {depth}"

    def forward(self, x, source, context, cache=None):
        context.cross_layer_state[self.name] = x
        return super().forward(x + sum(context.cross_layer_state.values()), source, context, cache)


class GrowingState(Placement):
    """Adds a stream for each group of sublayers."""

    @classmethod
    def streams(cls, options):
        return "streams"

    def forward(self, state, f, tokens):
        return *state, state[-1] + f(state[-1])

    @staticmethod
    def finish(state, norm):
        return norm(state[-1])


class UndeclaredGrowth(GrowingState):
    """The same, but `streams` says that there is one."""

    @classmethod
    def streams(cls, options):
        return 1


def line_of(cls, code):
    """A pattern of the line of a class that contains the code."""
    lines, first = inspect.getsourcelines(cls)
    [number] = [first + i for i, line in enumerate(lines) if code in line]
    return rf"line {number} of test_graph\.py: .*{re.escape(code)}"


FFN, ATTN, PLACEMENT = {"ffn": "broken"}, {"attn": "broken"}, {"placement": "broken"}
THREE = "3 graphs for 1 kind of layers: compiled again because this is no longer so: "
GAP = r"placement.* has another gradient: the gap is .* \d+ of \d+ gradients differ, from embed"
ARGUMENTS = [
    ("graph", FFNS, ReadsValue, rf"item\(\).*, in {line_of(ReadsValue, 'item()')}", FFN),
    ("graph", FFNS, BranchesOnValue, f"ing, in {line_of(BranchesOnValue, '>= 0')}", FFN),
    ("graph", FFNS, Prints, f"builtin operator, in {line_of(Prints, 'print(')}", FFN),
    ("graph", FFNS, DetachesCompiled, GAP, FFN),
    ("graph", FFNS, ShiftedCompiled, "output of the forward pass is another one: the gap", FFN),
    ("graph", POSITIONS, ReadsValueInTables, r"item\(\)", {"position": "broken"}),
    ("one graph", FFNS, IntOfLayer, THREE + r".*'ffn'.*depth == 0.*test_graph\.py", FFN),
    ("one graph", FFNS, FloatOfLayer, THREE, FFN),
    ("one graph", FFNS, ShapeOfLayer, THREE + r"tensor .*'mine'.* expected 1, actual 2", FFN),
    ("one graph", ATTENTIONS, DepthOfContext, THREE + ".*depth == 0", ATTN),
    ("one graph", ATTENTIONS, StateNamedByLayer, THREE, ATTN),
    ("one graph", PLACEMENTS, UndeclaredGrowth, rf"{THREE}len\(.*\) == 1", PLACEMENT),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("graph") == {law for law, *_ in ARGUMENTS}


def test_sublayers_of_a_placement_with_a_growing_state_share_graphs():
    with registered(PLACEMENTS, GrowingState):
        assert LAWS["one graph"](tiny_config(**PLACEMENT)) is None


class Sum(nn.Module):
    def forward(self, *streams):
        return sum(streams)


class SumOfStreams(GrowingState):
    """Compiles a function of all streams, whose number differs between layers."""

    compiled_parts = ("sum",)

    def __init__(self):
        super().__init__()
        self.sum = Sum()

    def forward(self, state, f, tokens):
        return *state, state[-1] + f(self.sum(*state))


def test_a_compiled_part_that_takes_streams_one_by_one_is_caught():
    with registered(PLACEMENTS, SumOfStreams), pytest.raises(AssertionError, match="graphs for"):
        LAWS["one graph"](tiny_config(**PLACEMENT))


class DeclaredGrowingState(UndeclaredGrowth):
    breaks = {"one graph": "its state grows"}


def test_a_component_that_declares_to_break_one_law_is_exempt_from_only_that_law():
    with registered(PLACEMENTS, DeclaredGrowingState):
        config = tiny_config(placement="broken")
        assert "its state grows" in LAWS["one graph"](config)
        assert LAWS["graph"](config) is None


class TensorOfLayer(IntOfLayer):
    """Multiplies by a tensor of the layer, as the message of the law proposes."""

    def __init__(self, dim: int, depth: int):
        super().__init__(dim, depth)
        self.register_buffer("factor", torch.tensor(0.5 / (depth + 1)), persistent=False)

    def forward(self, x, tokens):
        return MLP.forward(self, x * self.factor)


def test_layers_with_a_tensor_of_the_layer_share_one_graph():
    with registered(FFNS, TensorOfLayer):
        assert LAWS["one graph"](tiny_config(ffn="broken")) is None


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
def test_kinds_of_layers_and_the_first_layer_with_cross_layer_state_may_have_own_graphs(
    changes, kinds
):
    assert LAWS["one graph"](tiny_config(**changes)) is None
    with (
        registered(PLACEMENTS, UndeclaredGrowth),
        pytest.raises(AssertionError, match=f"for {kinds} kind"),
    ):
        LAWS["one graph"](tiny_config(**changes, placement="broken"))
