"""What a parameter is: its role, its axes, and what others need to know about it.

A module describes the parameters that it makes in its attribute `parameter_info`, of the class or
of the instance, which is merged with those of its base classes:

    class MultiHead(Attention):
        parameter_info = {
            "q": hidden("heads*head_dim", "dim"),
            "o": hidden("dim", "heads*v_head_dim", writes=True),
            "q_norm": SubmoduleInfo({"normalised": "head_dim"}, shared_by_heads=True),
        }

A key is the name of a parameter (`scale`, `k.bias`) or of a submodule (`q`), whose weight and bias
it describes; a name that the module does not have is ignored. `SubmoduleInfo` adds facts that
depend on the outer module; "" is the module itself. If a module and one inside it describe the same
parameter, the outer one counts. `parameter_table` collects the descriptions of a model.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch import nn

from xformer_kit.registry import config_error

Role = Literal["embedding", "hidden", "head", "vector"]  # see ParameterInfo
# Attributes that hold the module inside a wrapper (torch.compile, checkpointing, FSDP).
WRAPPED = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


@dataclass(frozen=True)
class ParameterInfo:
    """The description of a parameter.

    role: `embedding`, whose rows are looked up; `hidden`, a linear map between channels; `head`,
    the linear map to the vocabulary; or `vector`: gains, biases, and tables of numbers.
    axes: name of each axis, such as dim, heads, head_dim, width, vocab, experts; a product is
    written heads*head_dim. None: not stated.
    writes: whether it is the last linear map of a sublayer, which writes to the residual stream.
    scales_output: whether a sublayer's output scales with it: values, outputs, and the maps of
    feed-forward networks, but not queries, keys and routers.
    multiplied_by_gate: whether its output is multiplied by the activated output of another matrix.
    bias: whether it is added to the output of a map. Biases start at 0.
    decays: whether weight decay applies. None: it does if the parameter has two or more axes and is
    no bias.
    zero_gradient: whether its gradient may be zero in every step, by the component's mathematics.
    shared_by_heads: whether it is of an attention and has no axis of heads: a shard of the heads
    needs all of it.
    head_channels: channels of a head in an axis such as heads*2*head_dim: the product of the sizes
    after the number of heads. `parameter_table` finds it if the module that describes the parameter
    has attributes of these names.
    """

    role: Role
    axes: tuple[str, ...] | None = None
    writes: bool = False
    scales_output: bool = False
    multiplied_by_gate: bool = False
    bias: bool = False
    decays: bool | None = None
    zero_gradient: bool = False
    shared_by_heads: bool | None = None
    head_channels: int | None = None

    def of_bias(self) -> "ParameterInfo":
        """The description of the bias of a linear map, from that of its weight."""
        return ParameterInfo(
            "vector", self.axes and self.axes[:-1], bias=True, shared_by_heads=self.shared_by_heads
        )


class SubmoduleInfo(NamedTuple):
    """What an outer module adds to the descriptions of all parameters of a submodule.

    axes: name of an axis there -> its name here, such as that of the channels of a norm.
    shared_by_heads: for those that do not state it.
    zero_gradient_of_biases: whether the gradient of biases may be zero.
    """

    axes: Mapping[str, str] = MappingProxyType({})
    shared_by_heads: bool | None = None
    zero_gradient_of_biases: bool = False

    def __call__(self, info: ParameterInfo) -> ParameterInfo:
        """Returns the description with what the outer module adds."""
        axes = info.axes and tuple(
            "*".join(self.axes.get(name, name) for name in axis.split("*")) for axis in info.axes
        )
        return replace(
            info,
            axes=axes,
            shared_by_heads=self.shared_by_heads
            if info.shared_by_heads is None
            else info.shared_by_heads,
            zero_gradient=info.zero_gradient or (self.zero_gradient_of_biases and info.bias),
        )


def hidden(
    *axes: str, writes: bool = False, scales_output: bool = False, **facts: Any
) -> ParameterInfo:
    """A linear map; its axes are those of the weight, (out, in). `writes` implies
    `scales_output`.
    """
    return ParameterInfo("hidden", axes or None, writes, scales_output or writes, **facts)


def vector(*axes: str, **facts: Any) -> ParameterInfo:
    """A vector, a scalar or a table of numbers."""
    return ParameterInfo("vector", axes or None, **facts)


def embedding(*axes: str, **facts: Any) -> ParameterInfo:
    """A table whose rows are looked up."""
    return ParameterInfo("embedding", axes or None, **facts)


Info = ParameterInfo | SubmoduleInfo  # a value of `parameter_info`


def parameter_table(model: nn.Module) -> dict[str, ParameterInfo]:
    """Returns the description of every parameter by its canonical name, also on the meta device; a
    tied parameter occurs once.

    Without a statement, a parameter of two or more axes is `hidden`, another one a `vector`, the
    weight of a torch.nn.Embedding an `embedding`, and one called bias is a bias.
    """
    modules = dict(model.named_modules())
    stated: dict[nn.Parameter, ParameterInfo] = {}
    within: list[tuple[nn.Module, SubmoduleInfo]] = []
    for module in modules.values():
        for key, statement in _statements(module).items():
            if isinstance(statement, SubmoduleInfo):
                inner = module if key == "" else _found(module, key)
                within += [(inner, statement)] if isinstance(inner, nn.Module) else []
                continue
            for parameter, info in _described(_found(module, key), statement):
                stated.setdefault(parameter, _with_head_channels(info, module))
    owned = list(owned_parameters(modules))
    for own in owned:
        stated.setdefault(own.parameter, _unstated(own))
    for inner, change in reversed(within):  # those of inner modules first
        for parameter in inner.parameters():
            stated[parameter] = change(stated[parameter])
    return {own.name: _complete(stated[own.parameter], own.parameter) for own in owned}


class OwnedParameter(NamedTuple):
    """A parameter, its canonical name, its module and the attribute there."""

    name: str
    parameter: nn.Parameter
    module: nn.Module
    key: str


def owned_parameters(modules: Mapping[str, nn.Module]) -> Iterator[OwnedParameter]:
    """Yields every parameter once. It takes the modules of `named_modules()`, so that building a
    model traverses them once.
    """
    seen = set()
    for path, module in modules.items():
        for name, parameter in module.named_parameters(path, recurse=False):
            if parameter not in seen:
                seen.add(parameter)
                yield OwnedParameter(canonical(name), parameter, module, name.rpartition(".")[2])


def training_buffers(model: nn.Module) -> set[str]:
    """Returns the canonical names of the buffers that only training reads."""
    return {
        canonical(f"{path}.{name}")
        for path, module in model.named_modules()
        for name in getattr(type(module), "training_buffers", ())
    }


def canonical(name: str) -> str:
    """A parameter's name without the names that wrappers add (torch.compile, checkpointing, FSDP,
    DDP).
    """
    path = [part for part in name.split(".") if part not in WRAPPED]
    return ".".join(path[1:] if path[0] == "module" else path)


def _statements(module: nn.Module) -> Mapping[str, Info]:
    cls: Any = type(module)
    own = vars(module).get("parameter_info")
    return {**_of_class(cls), **_checked(cls, own)} if own else _of_class(cls)


def _checked(cls: type, statements: Any) -> Mapping[str, Info]:
    """The statements. Raises ConfigError if they are no mapping of names to descriptions."""
    if isinstance(statements, Mapping) and all(
        isinstance(key, str) and isinstance(value, Info) for key, value in statements.items()
    ):
        return statements
    raise config_error(
        f"{cls.__name__}.parameter_info",
        "must map names of parameters and submodules to hidden, vector, embedding or SubmoduleInfo",
        got=f"{statements!r}",
        fix='Try parameter_info = {"up": hidden("width", "dim")}.',
    )


@cache
def _of_class(cls: type) -> dict[str, Info]:
    """The statements of a class and its bases, where those of a subclass count; those of one
    parameter before those of a submodule.
    """
    merged: dict[str, Info] = {}
    for base in reversed(cls.__mro__):
        merged |= _checked(cls, getattr(base, "parameter_info", {}))
    return dict(sorted(merged.items(), key=lambda item: -item[0].count(".")))


def _found(module: nn.Module, key: str) -> nn.Module | nn.Parameter | None:
    """The submodule or the parameter that a key names; None if the module does not have it."""
    owner: nn.Module | None = module
    *path, last = key.split(".")
    for name in path:
        owner = None if owner is None else _unwrapped(owner._modules.get(name))
    if owner is None:
        return None
    found = owner._modules.get(last)
    return owner._parameters.get(last) if found is None else _unwrapped(found)


def _unwrapped(module: nn.Module | None) -> nn.Module | None:
    """The module inside its wrappers."""
    inner = [] if module is None else [m for w in WRAPPED if (m := module._modules.get(w))]
    return _unwrapped(inner[0]) if inner else module


def _described(
    found: nn.Module | nn.Parameter | None, info: ParameterInfo
) -> Iterator[tuple[nn.Parameter, ParameterInfo]]:
    """Yields what a statement describes: a parameter, or a submodule's weight and bias."""
    if isinstance(found, nn.Parameter):
        yield found, info
    elif found is not None:
        if info.axes and (first := getattr(found, "first_axes", ())):
            info = replace(info, axes=(*first, *info.axes))
        for key, of_key in (("weight", info), ("bias", info.of_bias())):
            if (parameter := found._parameters.get(key)) is not None:
                yield parameter, of_key


def _with_head_channels(info: ParameterInfo, module: nn.Module) -> ParameterInfo:
    for heads, *factors in (axis.split("*") for axis in info.axes or ()):
        sizes = [int(name) if name.isdigit() else vars(module).get(name) for name in factors]
        if "heads" in heads and sizes and info.head_channels is None and None not in sizes:
            return replace(info, head_channels=math.prod(sizes))
    return info


def _unstated(own: OwnedParameter) -> ParameterInfo:
    axes = ("normalised",) if isinstance(own.module, nn.LayerNorm | nn.RMSNorm) else None
    if own.key == "bias":
        return ParameterInfo("vector", axes, bias=True)
    if isinstance(own.module, nn.Embedding):
        return ParameterInfo("embedding")
    return ParameterInfo("hidden" if own.parameter.ndim >= 2 else "vector", axes)


def _complete(info: ParameterInfo, parameter: nn.Parameter) -> ParameterInfo:
    decays = parameter.ndim >= 2 and not info.bias if info.decays is None else info.decays
    return replace(info, decays=decays, shared_by_heads=bool(info.shared_by_heads))
