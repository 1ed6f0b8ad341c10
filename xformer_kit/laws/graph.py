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

from xformer_kit.laws.registry import law
from xformer_kit.laws.tiny_composition import Composition, with_model_options
from xformer_kit.model.compiling import compile_blocks
from xformer_kit.model.model import Model
from xformer_kit.plan import stacks
from xformer_kit.tensors.tokens import Tokens

GRADIENT_TOLERANCE = 1e-4  # in fp32, of the largest gradient of a parameter, or of 1
LAYERS_PER_KIND = 3  # the first two may share a graph that the third does not share
# If a number has another value the second time, torch makes it a symbol of the graph, for all later
# ones: many layers with a number each would have two graphs, where they should have one. It may
# also make a symbol of a tensor value that is read, for which a GPU has to wait.
OPTIONS: dict[str, Any] = {
    "automatic_dynamic_shapes": False,
    "specialize_float": True,
    "capture_scalar_outputs": False,
    "capture_dynamic_output_shape_ops": False,
    "recompile_limit": 64,  # graphs of blocks, above which torch does not compile
}


@law("graph", slow=True)
def graph(composition: Composition) -> None:
    """The forward pass of a training step compiles as one graph: no tensor value is read into
    Python or decides a branch. Compiled, it has the same gradients.
    """
    composition = _with_layers(composition, 1)
    model = composition.trainable_model().float().train()
    forward = _forward(composition, model)
    with _compiling() as graphs:
        # not `fullgraph`, with which torch traces a value that is read
        compiled = torch.compile(forward, backend=graphs.add)
        _run(composition, compiled)
        for reason in counters["graph_break"]:
            raise composition.broken(_shortened(reason))
        if graphs.count != 1:
            raise composition.broken(f"{graphs.count} graphs")
        if not _drops_attention_weights(composition):
            got, expected = {}, _gradients(model, forward)
            _run(composition, lambda: got.update(_gradients(model, compiled)))
            for name, gradient in expected.items():
                message = f"compiled, {name} has another gradient"
                composition.assert_close(got[name], gradient, message, GRADIENT_TOLERANCE)


@law("one graph", prerequisites=("graph",), slow=True)
def one_graph(composition: Composition) -> None:
    """All layers of a kind share one graph, if each block is compiled separately; with cross-layer
    state, the first layer of a kind, which receives none, has a second graph.
    """
    composition = _with_layers(composition, LAYERS_PER_KIND)
    model = composition.trainable_model().float().train()
    # Layers with and without a module of an extra are different kinds.
    stacks: list[Any] = [model.get_submodule(name) for name in model.names]
    kinds = sum(stack.num_block_kinds for stack in stacks)
    graphs_per_kind = 1 + _has_cross_layer_state(composition, model)
    with _compiling() as graphs:
        compile_blocks(model, backend=graphs.add, fullgraph=True)
        _run(composition, _forward(composition, model))
    if graphs.count > kinds * graphs_per_kind:
        raise composition.broken(
            f"{graphs.count} graphs for {kinds} kind{'s' * (kinds > 1)} of layers: hold a number of"
            " a layer in a tensor (register_buffer), and give all layers of a kind the same shapes"
        )


class _GraphCounter:
    """A backend that runs traced graphs without compiling them, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, traced: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.count += 1
        return traced.forward


@contextmanager
def _compiling() -> Iterator[_GraphCounter]:
    """Starts without compiled graphs, and restores torch's generator and options afterwards."""
    with _dynamo.config.patch(OPTIONS), torch.random.fork_rng(devices=[]):
        _dynamo.reset()
        counters.clear()
        yield _GraphCounter()
        _dynamo.reset()


def _run(composition: Composition, forward: Callable[[], Any]) -> None:
    """Runs a forward pass, or also a backward pass. Raises LawBroken if torch cannot trace it."""
    try:
        forward()
    except _dynamo.exc.TorchDynamoException as error:
        raise composition.broken(_shortened(str(error))) from None


def _shortened(reason: str) -> str:
    return " ".join(reason.split())[:200]


def _forward(composition: Composition, model: Model) -> Callable[[], Tensor]:
    """Returns the forward pass of a training step; the tokens are created outside of the graph."""
    tokens = Tokens(ids=composition.ids)
    source = None if composition.source is None else Tokens(ids=composition.source)
    return lambda: model.head(model.hidden(tokens, source=source, multi_token=True)[0])


def _drops_attention_weights(composition: Composition) -> bool:
    """Whether an attention has dropout: compiled, its random numbers are others."""
    return any(context.options["attn"].get("dropout") for context in composition.attention_contexts)


def _gradients(model: Model, forward: Callable[[], Tensor]) -> dict[str, Tensor]:
    """Returns the gradients of the parameters, zeros for none, with the same random numbers at each
    call.
    """
    torch.manual_seed(0)
    model.zero_grad()
    forward().square().sum().backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in model.named_parameters()
    }


def _with_layers(composition: Composition, count: int) -> Composition:
    """Returns the composition with `count` layers of each kind, unless a stack sets its number of
    layers.
    """
    config = composition.config
    kinds = [{block.variant for block in plan.blocks} for plan in stacks(config)]
    layers = count * max(map(len, kinds))
    return Composition(with_model_options(config, layers=layers), composition.law)


def _has_cross_layer_state(composition: Composition, model: Model) -> bool:
    """Whether layers pass tensors to later layers besides the residual stream."""
    states = list[bool]()
    with ExitStack() as hooks, torch.random.fork_rng(devices=[]), torch.no_grad():
        for name in model.names:
            for block in model.get_submodule(name).layers:  # type: ignore[union-attr]
                hook = block.register_forward_hook(lambda _, args, out: states.append(bool(out[2])))
                hooks.enter_context(hook)
        _forward(composition, model)()
    return any(states)
