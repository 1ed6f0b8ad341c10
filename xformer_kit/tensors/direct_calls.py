"""Direct calls: in generation a module without hooks is called as its `forward`.

A step of generation calls dozens of modules with one row each. `nn.Module.__call__` tests each time
for hooks, compilation and tracing, and `nn.Module.__getattr__` finds every submodule and parameter
by a search of three dictionaries. Neither changes between two tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

# What a module has registered, by name.
REGISTERED = ("_modules", "_parameters", "_buffers")
HOOKS_FOR_ALL = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
ADDED = "_direct_attributes"  # names of the attributes that the context adds to a module
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Uses of a module that end its direct calls: they add hooks, change what is registered, or copy it.
ENDING = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
    "register_buffer",
    "register_parameter",
    "register_module",
    "add_module",
    "compile",
    "_apply",
    "__setattr__",
    "__delattr__",
    "__reduce_ex__",
    "__getstate__",
)


def _ends(name: str) -> Any:
    """Returns a method that ends the direct calls of its module and then calls its own method."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _end(self)
        return getattr(self, name)(*args, **kwargs)

    return method


ENDING_METHODS = {name: _ends(name) for name in ENDING}


@contextmanager
def with_direct_calls(model: nn.Module) -> Iterator[None]:
    """Within this context, calls of the model's modules are calls of their `forward`, and their
    submodules, parameters and buffers are attributes of the instance.

    Has no effect if a module has hooks or is compiled, if there are hooks for all modules, or while
    the model is traced. Modules whose class defines its own `__call__` are called as ever, and so
    is a module from the moment that it gets a hook, a submodule or a parameter.
    """
    modules = [*model.modules()]
    try:
        if not any(map(_is_hooked, modules)) and not _is_observed():
            for module in modules:
                _begin(module)
        yield
    finally:
        for module in modules:
            _end(module)


def _is_hooked(module: nn.Module) -> bool:
    """Whether a module has hooks, or is compiled."""
    return any(getattr(module, name) for name in HOOKS) or module._compiled_call_impl is not None


def _is_observed() -> bool:
    """Whether there are hooks for all modules, or the model is traced."""
    names = vars(torch_module).items()
    for_all = any(value for name, value in names if name in HOOKS_FOR_ALL)
    return for_all or torch._C._get_tracing_state() is not None or torch.compiler.is_compiling()


def _begin(module: Any) -> None:
    """Makes the calls of a module direct, unless its class changes what a call is."""
    cls: Any = type(module)
    own = module.__dict__
    if not _can_be_direct(cls):
        return
    if "forward" in own:  # of this instance only
        direct = _direct_class(cls, staticmethod(own["forward"]))
    else:
        direct = _cached_direct_class(cls)
    found = {name: value for kind in REGISTERED for name, value in own[kind].items()}
    added = own[ADDED] = [name for name in found if name not in own]
    own.update((name, found[name]) for name in added)
    module.__class__ = direct


def _end(module: Any) -> None:
    """Makes the calls of a module ordinary ones again, if they are direct."""
    added = module.__dict__.pop(ADDED, None)
    if added is not None:
        object.__setattr__(module, "__class__", type(module).__base__)
        for name in added:
            module.__dict__.pop(name, None)


@cache
def _can_be_direct(cls: Any) -> bool:
    """Whether a class can have a subclass that is called as its `forward`. `__init_subclass__` of
    other packages may do more than to set attributes of the subclass.
    """
    plain = type(cls) is type and cls.__call__ is nn.Module.__call__
    foreign = (c for c in cls.__mro__[:-1] if not c.__module__.startswith("xformer_kit."))
    return plain and not any("__init_subclass__" in vars(c) for c in foreign)


def _direct_class(cls: type, call: Any) -> type:
    """A subclass of `cls` for modules that are called as `call`."""
    body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__call__": call}
    return type(cls.__name__, (cls,), {**body, **ENDING_METHODS})


@cache
def _cached_direct_class(cls: Any) -> type:
    return _direct_class(cls, cls.forward)
