"""Law of the table of parameters: what modules state about their parameters is true."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.attention.qk_norm import EachHead
from xformer_kit.files.user_errors import is_users
from xformer_kit.laws.registry import law
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.model.model import Model
from xformer_kit.plan import ModelPlan, model_plan
from xformer_kit.tensors import ParameterInfo, parameter_table

HEADS = {"heads", "kv_heads", "v_heads"}
Table = Mapping[str, ParameterInfo]


@law("parameters")
@torch.no_grad()
def parameters(composition: Composition) -> None:
    """The product of a parameter's axes is its shape, with sizes that agree within a component and
    with its options; a parameter of an attention without an axis of heads is shared by all heads;
    and a matrix writes to the residual stream if one row of it changes only one channel of its
    sublayer's output, linearly. What the modules of a user do not state is skipped.

    Fails: decoder.0.ffn.up.weight has the shape (19, 36), not ('dim', 'width') with {'dim': 36}.
    Fix: State the axes of a weight as output, input, and `writes=True` for the last matrix of a
        sublayer only.
    """
    model = composition.shared_model  # its parameters are changed and restored
    table = parameter_table(model)
    _check_axes(composition, model, table)
    for name, module in _sublayers(model).items():
        if hasattr(module, "kernel"):
            _check_shared(composition, name, module, table)
    for name, parameter, run in _matrices_of_sublayers(composition, model):
        found = _writes(parameter, run) if table[name].axes else None
        if found is not None and found != table[name].writes:
            states = "does not state" if found else "states"
            raise composition.broken(f"{name} {states} that it writes to the residual stream")


def _check_axes(composition: Composition, model: Model, table: Table) -> None:
    scopes = dict(_scopes(model_plan(composition.config), model))
    sizes = {
        scope: {key: n for key, n in options.items() if type(n) is int} | {"dim": model.dim}
        for scope, options in scopes.items()
    }
    for name, parameter in model.named_parameters():
        axes, shape = table[name].axes, tuple(parameter.shape)
        if axes is None:
            if _is_described(model, name):
                raise composition.broken(f"no module states the axes of {name}, {shape}")
            continue
        path = name.split(".")
        inside = (".".join(path[:n]) for n in range(len(path), 0, -1))
        known = sizes[next(scope for scope in inside if scope in sizes)]
        if len(axes) != len(shape) or not all(
            _fits(axis, size, known) for axis, size in zip(axes, shape, strict=True)
        ):
            raise composition.broken(f"{name} has the shape {shape}, not {axes} with {known}")


def _scopes(plan: ModelPlan, model: Model) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields (path, options) of each part of a model within which the name of an axis has one
    size.
    """
    yield from (("embed", {}), ("source_embed", {}), ("token_type", {}), ("head", {}))
    for stack in plan.stacks:
        built = _stack(model, stack.name)
        yield from ((f"{stack.name}.{name}", {}) for name in ("norm", "embed_norm", "project"))
        yield from ((f"{stack.name}.position.{name}", {}) for name in stack.attention.positions)
        for name, extra in built.extra.items():
            yield f"{stack.name}.extra.{name}", plan.extras[name]
            for depth in getattr(extra, "layers", ()):  # layers may have different widths
                yield f"{stack.name}.extra.{name}.layers.{depth}", plan.extras[name]
        for path, block in built.named_blocks.items():  # also those of extras
            for names in block.sublayer_groups:
                yield from ((f"{stack.name}.{path}.{name}", {}) for name in names)
                yield f"{stack.name}.{path}.placement.{'_'.join(names)}", {}
        for at, (_, planned) in enumerate(stack.own_blocks):
            for sub in planned.sublayers:
                yield f"{stack.name}.{at}.{sub.name}", sub.component
            for group in planned.groups:
                names = "_".join(sub.name for sub in group)
                yield f"{stack.name}.{at}.placement.{names}", planned.nodes["placement"]


def _fits(axis: str, size: int, sizes: dict[str, int]) -> bool:
    """Whether an axis has the product of its factors as its size. Factors of unknown size are known
    from then on, several as one product.
    """
    factors = [int(name) if name.isdigit() else sizes.get(name, name) for name in axis.split("*")]
    known = prod(n for n in factors if isinstance(n, int))
    unknown = "*".join(sorted(n for n in factors if isinstance(n, str)))
    if not unknown:
        return size == known
    return size % known == 0 and sizes.setdefault(unknown, size // known) == size // known


def _is_described(model: nn.Module, name: str) -> bool:
    """Whether only modules of this package and of torch contain a parameter."""
    *path, _ = name.split(".")
    inside = [model.get_submodule(".".join(path[: n + 1])) for n in range(len(path))]
    return not any(is_users(m) and type(m).__module__.split(".")[0] != "torch" for m in inside)


def _check_shared(composition: Composition, path: str, module: nn.Module, table: Table) -> None:
    of_one_head = {
        id(p) for m in module.modules() if isinstance(m, EachHead) for p in m.parameters()
    }
    for key, parameter in module.named_parameters():
        info = table[f"{path}.{key}"]
        unnamed = info.axes is None or "normalised" in info.axes  # in a user's attention
        if unnamed or id(parameter) in of_one_head:
            continue
        factors = {name for axis in info.axes or () for name in axis.split("*")}
        of_output = info.bias and info.axes == ("dim",)
        if info.shared_by_heads == bool(factors & HEADS) and not of_output:
            states = "states" if info.shared_by_heads else "does not state"
            raise composition.broken(f"{path}.{key}, {info.axes}, {states} that heads share it")


def _sublayers(model: Model) -> dict[str, nn.Module]:
    """Path -> sublayer, of the blocks of all stacks."""
    return {
        f"{name}.{at}.{sub}": getattr(block, sub)
        for name in model.names
        for at, block in enumerate(_stack(model, name).blocks)
        for group in block.sublayer_groups
        for sub in group
    }


def _stack(model: Model, name: str) -> Any:
    return model.get_submodule(name)


def _matrices_of_sublayers(
    composition: Composition, model: Model
) -> Iterator[tuple[str, nn.Parameter, Callable[[], Tensor]]]:
    """Yields (name, matrix, function that computes the output of its sublayer in a model's forward
    pass).
    """
    calls: dict[nn.Module, Callable[[], Any]] = {}

    def record(module: nn.Module, args: Any, kwargs: Any) -> None:
        context = kwargs.get("context")
        state = {} if context is None else context.cross_layer_state
        calls.setdefault(module, partial(_again, module, args, kwargs, state, dict(state)))

    sublayers = _sublayers(model)
    hooks = [
        module.register_forward_pre_hook(record, with_kwargs=True) for module in sublayers.values()
    ]
    composition.all_logits(model)
    for hook in hooks:
        hook.remove()
    for path, module in sublayers.items():
        for key, parameter in module.named_parameters():
            if parameter.ndim >= 2 and module in calls:
                yield f"{path}.{key}", parameter, calls[module]


def _again(
    module: nn.Module, args: Any, kwargs: Any, state: dict[str, Any], before: dict[str, Any]
) -> Tensor:
    """The output of a sublayer, after the state that crosses layers is as before its call."""
    state.clear()
    state.update(before)
    output = module(*args, **kwargs)
    return output[0] if isinstance(output, tuple) else output


def _writes(parameter: nn.Parameter, run: Callable[[], Tensor]) -> bool | None:
    """Whether the first row of a matrix (..., out, in) changes only the first channel of the
    output, linearly; None if it changes nothing.
    """
    before, original = run(), parameter.clone()
    parameter[..., 0, :] += 0.5
    once = run() - before
    parameter[..., 0, :] += 0.5
    twice = run() - before
    parameter.copy_(original)
    size = once.abs().max()
    if size <= 1e-6 * before.abs().max():
        return None
    elsewhere, curved = once[..., 1:].abs().max(), (twice - 2 * once).abs().max()
    return bool(max(elsewhere, curved) <= 1e-6 * size)
