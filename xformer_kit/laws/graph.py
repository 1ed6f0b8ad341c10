"""Laws of compilation: a model compiles without graph breaks, and layers of a kind share one graph.

A tensor value that is read into Python breaks the graph. A Python number that differs between
layers makes a graph for each layer: compilation takes as many times longer, up to a limit, after
which torch does not compile.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, _dynamo, fx
from torch._dynamo.utils import counters

from xformer_kit.laws.composition import Composition, with_model
from xformer_kit.laws.registry import law
from xformer_kit.model.compiling import compile_blocks
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens
from xformer_kit.plan import stacks

EQUAL = 3  # layers of each kind: the first two may share a graph that the third does not
# Torch makes a number that is another the second time a symbol of the graph, for all later ones:
# many layers with a number each would have two graphs, where they should have one. It may make one
# also of a value that is read, for which a GPU is waited for.
OPTIONS = {
    "automatic_dynamic_shapes": False,
    "specialize_float": True,
    "capture_scalar_outputs": False,
    "capture_dynamic_output_shape_ops": False,
}
LIMIT = 64  # graphs of blocks, beyond which torch does not compile


@law("graph", slow=True)
def graph(case: Composition) -> None:
    """The forward pass of a training step compiles as one graph: no tensor value is read into
    Python or decides a branch.
    """
    case = _of_layers(case, 1)
    model = case.learning().float().train()
    with _compiling() as graphs:
        # not `fullgraph`, with which torch traces a value that is read
        _holds(case, torch.compile(_forward(case, model), backend=graphs.add))
        for reason in counters["graph_break"]:
            raise case.broken(_short(reason))
        if graphs.count != 1:
            raise case.broken(f"{graphs.count} graphs")


@law("one graph", under=("graph",), slow=True)
def one_graph(case: Composition) -> None:
    """All layers of a kind share one graph, if each block is compiled separately; with cross-layer
    state, the first layer of a kind, which receives none, has a second graph.
    """
    case = _of_layers(case, EQUAL)
    model = case.learning().float().train()
    # Layers with and without a module of an extra are different kinds.
    stacks: list[Any] = [model.get_submodule(name) for name in model.names]
    kinds = sum(stack.num_block_kinds for stack in stacks)
    crosses = _crosses(case, model)
    with _compiling() as graphs:
        compile_blocks(model, backend=graphs.add, fullgraph=True)
        _holds(case, _forward(case, model))
    if graphs.count > kinds * (1 + crosses):
        raise case.broken(
            f"{graphs.count} graphs for {kinds} kind{'s' * (kinds > 1)} of layers: hold a number of"
            " a layer in a tensor (register_buffer), and give all layers of a kind the same shapes"
        )


class _Graphs:
    """A backend that runs traced graphs without compiling them, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, traced: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.count += 1
        return traced.forward


@contextmanager
def _compiling() -> Iterator[_Graphs]:
    """Starts without compiled graphs, and restores torch's generator and options afterwards."""
    options: dict[str, Any] = {**OPTIONS, "recompile_limit": LIMIT}
    with _dynamo.config.patch(options), torch.random.fork_rng(devices=[]):
        _dynamo.reset()
        counters.clear()
        yield _Graphs()
        _dynamo.reset()


def _holds(case: Composition, run: Callable[[], Tensor]) -> None:
    try:
        run()
    except _dynamo.exc.TorchDynamoException as error:
        raise case.broken(_short(str(error))) from None


def _short(reason: str) -> str:
    return " ".join(reason.split())[:200]


def _forward(case: Composition, model: Model) -> Callable[[], Tensor]:
    """Returns the forward pass of a training step; the tokens are created outside of the graph."""
    tokens = Tokens(ids=case.ids)
    source = None if case.source is None else Tokens(ids=case.source)
    return lambda: model.head(model.hidden(tokens, source=source, further=True)[0])


def _of_layers(case: Composition, count: int) -> Composition:
    """Returns the composition with `count` layers of each kind, unless a stack sets it."""
    kinds = [{block.variant for block in plan.blocks} for plan in stacks(case.config)]
    layers = count * max(map(len, kinds))
    return Composition(with_model(case.config, layers=layers), case.law, case.under)


def _crosses(case: Composition, model: Model) -> bool:
    """Whether layers pass tensors to later layers besides the residual stream."""
    handed = list[bool]()
    with ExitStack() as hooks, torch.random.fork_rng(devices=[]), torch.no_grad():
        for name in model.names:
            for block in model.get_submodule(name).layers:  # type: ignore[union-attr]
                hook = block.register_forward_hook(lambda _, args, out: handed.append(bool(out[2])))
                hooks.enter_context(hook)
        _forward(case, model)()
    return any(handed)
