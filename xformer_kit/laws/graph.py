"""Laws of compilation: a model compiles without graph breaks, and layers of a kind share one graph.

A tensor value that is read into Python breaks the graph. A Python number that differs between
layers makes a graph for each layer: compilation takes as many times longer, up to a limit, after
which torch does not compile.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from traceback import FrameSummary
from typing import Any

import torch
from torch import Tensor, _dynamo, fx
from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics

from xformer_kit.laws.registry import law
from xformer_kit.laws.tiny_composition import (
    Composition,
    NotApplicable,
    faults,
    with_model_options,
)
from xformer_kit.model.compiling import compile_blocks, graph_kinds
from xformer_kit.model.model import Model
from xformer_kit.plan import stacks
from xformer_kit.tensors.tokens import Tokens

TORCH = str(Path(torch.__file__).parent)
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
    Python or decides a branch. Compiled, it has the same output and the same gradients.

    Fails: Data-dependent branching, in line 28 of my_components.py: return x if x.max() > 0 else
        -x.
    Fix: Use torch.where in place of a branch on values, keep values in tensors, and call only what
        torch traces. For another gradient or output: look for torch.compiler.is_compiling(),
        detach, and for operations in place.
    """
    composition = _with_layers(composition, 1)
    model = composition.trainable_model().float().train()
    forward = _forward(composition, model)
    with _compiling() as graphs:
        # not `fullgraph`, with which torch traces a value that is read
        compiled = torch.compile(forward, backend=graphs.add)
        _run(composition, compiled)
        for reason in [*counters["graph_break"]]:
            raise composition.broken(_break(forward, reason))
        if graphs.count != 1:
            raise composition.broken(f"{graphs.count} graphs")
        if not _drops_attention_weights(composition):
            got, expected = {}, _gradients(model, forward)
            _run(composition, lambda: got.update(_gradients(model, compiled)))
            output = "compiled, the output of the forward pass is another one"
            composition.assert_close(got.pop(""), expected.pop(""), output, GRADIENT_TOLERANCE)
            _compare_gradients(composition, got, expected)


def _compare_gradients(
    composition: Composition, got: dict[str, Tensor], expected: dict[str, Tensor]
) -> None:
    """Raises LawBroken if gradients of the compiled model differ, with the largest gap."""
    # NaN in both is no difference; the law `gradients` reports it.
    gaps = {
        name: (got[name] - value).where(~(got[name].isnan() & value.isnan()), 0).abs().max().item()
        for name, value in expected.items()
    }
    bounds = {
        name: GRADIENT_TOLERANCE * max(1.0, value.abs().max().item())
        for name, value in expected.items()
    }
    wrong = [name for name, gap in gaps.items() if not gap <= bounds[name]]
    if wrong:
        worst = max(wrong, key=lambda name: gaps[name] / bounds[name])
        raise composition.broken(
            f"compiled, {worst} has another gradient: the gap is {gaps[worst]:.2e}, allowed is"
            f" {bounds[worst]:.2e}. The output is the same; {len(wrong)} of {len(gaps)} gradients"
            f" differ, from {wrong[0]} to {wrong[-1]}"
        )


def _break(forward: Callable[[], Any], reason: str) -> str:
    """Returns the reason of a graph break, and the line of code that causes it."""
    breaks = _dynamo.explain(forward)().break_reasons
    stack = next((one.user_stack for one in breaks if one.reason == reason), None)
    return _with_line(reason, stack)


def _with_line(reason: str, stack: Iterable[FrameSummary] | None) -> str:
    """Returns the first line of torch's reason, and the innermost line of code outside of torch."""
    own = [frame for frame in stack or () if not frame.filename.startswith(TORCH)]
    if not own:
        return _shortened(reason)
    line = f"in line {own[-1].lineno} of {Path(own[-1].filename).name}: {own[-1].line}"
    return f"{_shortened(reason.strip().splitlines()[0])}, {line}"


@law("one graph", prerequisites=("graph",), slow=True)
def one_graph(composition: Composition) -> None:
    """All layers of a kind share one graph, if each block is compiled separately; with cross-layer
    state, the first layer of a kind, which receives none, has a second graph. If the state of the
    placement grows from layer to layer (`streams` is a word), this holds for each module of the
    block that is compiled (`compiled_parts` of the placement, and sublayers).

    Fails: 3 graphs for 1 kind of layers: compiled again because this is no longer so:
        self._modules['ffn'].depth == 0.
    Fix: Hold a number that differs between layers in a tensor (register_buffer), give all layers of
        a kind the same shapes, and name tensors of cross-layer state without the layer. A placement
        whose state grows declares it by a word in `streams`, and takes the streams of a part that
        is compiled as one tensor whose number is marked as dynamic.
    """
    composition = _with_layers(composition, LAYERS_PER_KIND)
    model = composition.trainable_model().float().train()
    stacks: list[Any] = [model.get_submodule(name) for name in model.names]
    kinds = sum(map(graph_kinds, stacks))
    allowed = kinds * (1 + _has_cross_layer_state(composition, model))
    with _compiling() as graphs:
        compile_blocks(model, backend=graphs.add, fullgraph=True)
        _run(composition, _forward(composition, model))
        reasons = [one.recompile_reason for one in get_compilation_metrics()]
    if graphs.count > allowed:
        count = f"{graphs.count} graphs for {kinds} kind{'s' * (kinds > 1)} of layers"
        raise composition.broken(f"{count}: {_guard([*filter(None, reasons)][allowed - 1 :])}")


def _guard(reasons: list[str]) -> str:
    """Returns the guard, with its line of code, because of which torch compiled the first graph too
    many.
    """
    if not reasons:
        return "torch gives no reason"
    guard = reasons[0].partition(": ")[2]  # after the number of the graph
    for end in ("(HINT", "Guard failed on", "User stack trace"):
        guard = guard.partition(end)[0]
    return f"compiled again because this is no longer so: {_shortened(guard).rstrip('.')}"


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
    log = logging.getLogger("torch._dynamo")
    level = log.level
    with _dynamo.config.patch(OPTIONS), torch.random.fork_rng(devices=[]):
        _dynamo.reset()
        counters.clear()
        clear_compilation_metrics()
        log.setLevel(logging.ERROR)  # torch also prints what the law reports
        try:
            yield _GraphCounter()
        finally:
            log.setLevel(level)
            _dynamo.reset()


def _run(composition: Composition, forward: Callable[[], Any]) -> None:
    """Runs a forward pass, or also a backward pass. Raises LawBroken if torch cannot trace it."""
    try:
        forward()
    except _dynamo.exc.TorchDynamoException as error:
        stack = getattr(error, "real_stack", None)
        raise composition.broken(_with_line(str(error), stack)) from None


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
    """Returns the output by the name "", and the gradients of the parameters, zeros for none, with
    the same random numbers at each call.
    """
    torch.manual_seed(0)
    model.zero_grad()
    output = forward()
    output.square().sum().backward()
    return {"": output.detach()} | {
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
    more = with_model_options(config, layers=layers)
    if refused := faults(more):
        raise NotApplicable(f"more layers are refused: {refused[0]}")
    return Composition(more, composition.law)


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
