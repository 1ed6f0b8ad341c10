"""Types of options: whether a value matches, the type's name in messages, and building of nested
components.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from xformer_kit.registry.fault import Fault, Faults, format_value
from xformer_kit.registry.messages import suggestion, type_phrase

if TYPE_CHECKING:
    from xformer_kit.registry import Context, Registry

# default of an option that must be set (OmegaConf's own mark of a missing value)
REQUIRED = "???"
# base class of components -> their registry; filled by the constructor of Registry
NESTED: dict[type, "Registry"] = {}


@cache
def nested(annotation: Any) -> "Registry | None":
    """Returns the registry of the components that an option holds, or None. A component that needs
    arguments of the model is passed as a factory: its option is annotated with `Callable[...,
    Base]`.
    """
    if not isinstance(annotation, type) and get_origin(annotation) is Callable:
        annotation = get_args(annotation)[-1]
    return NESTED.get(annotation) if isinstance(annotation, type) else None


@cache
def holds_nested(annotation: Any) -> "Registry | None":
    """Returns the registry of the components that a value of this type is or contains."""
    if (inner := nested(annotation)) is not None:
        return inner
    if get_origin(annotation) in (Union, UnionType, list, tuple, dict):
        found = (holds_nested(arg) for arg in get_args(annotation) if arg is not ...)
        return next((registry for registry in found if registry is not None), None)
    return None


def nested_nodes(
    annotation: Any, value: Any, path: str
) -> "Iterator[tuple[str, Registry, dict[str, Any]]]":
    """Yields (path, registry, complete node) of each component in a value of this type."""
    registry = holds_nested(annotation)
    if registry is None or value is None or value == REQUIRED:
        return
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from nested_nodes(registry.base, item, f"{path}[{i}]")
        return
    node = registry.as_node(value)
    if isinstance(node, Mapping) and "name" not in node and get_origin(annotation) is dict:
        for key, item in node.items():
            yield from nested_nodes(registry.base, item, f"{path}.{key}")
    elif isinstance(node, Mapping) and "name" in node:
        yield path, registry, registry.complete(node)


def type_name(annotation: Any) -> str:
    """Returns the name of a type for users: `int | null`, `relu | gelu`, `list of mask`."""
    if (inner := nested(annotation)) is not None:
        return inner.kind
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(str(a) for a in args)
    if origin in (Union, UnionType):
        return " | ".join("null" if a is NoneType else type_name(a) for a in args)
    if origin in (list, tuple):
        count = f"{len(args)} " if origin is tuple and args[-1:] != (...,) else ""
        return f"list of {count}{type_name(args[0])}" if args else "list"
    if origin is dict or annotation is dict:
        return f"mapping of {type_name(args[1])}" if args[1:] not in ((), (Any,)) else "mapping"
    return getattr(annotation, "__name__", str(annotation))


@cache
def fitting(annotation: Any) -> frozenset[type]:
    """Returns the types whose values are all valid; most values have such a type and need no
    further check.
    """
    if get_origin(annotation) in (Union, UnionType):
        return frozenset().union(*map(fitting, get_args(annotation)))
    return frozenset({annotation} & {int, bool, str, NoneType})


def whole_number(annotation: Any, value: Any) -> Any:
    """Returns a whole number that is written as a float, such as 1e3, as an integer if the type has
    integers, also in a list; other values unchanged. In a type with floats, which are shares such
    as 1.0, only numbers above 1.
    """
    if isinstance(value, list):
        types = (annotation, *get_args(annotation))
        lists = [kind for kind in types if get_origin(kind) in (list, tuple)]
        return [whole_number(get_args(lists[0])[0], item) for item in value] if lists else value
    if type(value) is not float or not value.is_integer() or int not in fitting(annotation):
        return value
    kinds = get_args(annotation) or (annotation,)
    return value if float in kinds and value <= 1 else int(value)


def mismatch(annotation: Any, value: Any, path: str, context: "Context") -> Faults:
    """Yields why a value does not match a type; nothing if it matches. An int is a valid float."""
    if value == REQUIRED or type(value) in fitting(annotation):
        return
    origin, args = get_origin(annotation), get_args(annotation)
    if (inner := nested(annotation)) is not None:
        yield from inner.faults(value, path, context)
    elif origin in (Union, UnionType):
        yield from _of_union(annotation, value, path, context)
    elif origin in (list, tuple) and isinstance(value, (list, tuple)):
        each = args[:1] * len(value) if origin is list or args[1:] == (...,) else args
        if len(each) != len(value):
            yield Fault(path, f"must be a list of {len(each)} values", got=format_value(value))
            return
        for i, (kind, item) in enumerate(zip(each, value, strict=True)):
            yield from mismatch(kind, item, f"{path}[{i}]", context)
    elif origin is Literal:
        if value not in args or type(value) not in {type(a) for a in args}:
            yield Fault(
                path,
                f"no choice is called {format_value(value)}",
                fix=suggestion(value, [str(a) for a in args]),
            )
    elif (origin is dict or annotation is dict) and isinstance(value, Mapping):
        for key, item in value.items() if args else ():
            yield from mismatch(args[1], item, f"{path}.{key}", context)
    elif annotation is float and _is_infinite(value):
        yield Fault(path, "must be a finite number", got=value)
    elif not _is_plain(annotation, value):
        yield _other_type(annotation, value, path, context)


def _of_union(annotation: Any, value: Any, path: str, context: "Context") -> Faults:
    args = get_args(annotation)
    registries = [registry for a in args if (registry := nested(a)) is not None]
    mappings = [a for a in args if get_origin(a) is dict]
    if registries and isinstance(value, Mapping):
        yield from registries[0].faults(value, path, context)
    elif all(any(mismatch(a, value, path, context)) for a in args):
        if mappings and isinstance(value, Mapping):
            yield from mismatch(mappings[0], value, path, context)
        elif float in args and _is_infinite(value):
            yield from mismatch(float, value, path, context)
        else:
            yield _other_type(annotation, value, path, context)


def _is_infinite(value: Any) -> bool:
    """Whether the value is NaN or plus or minus infinity, or a whole number that no float holds."""
    try:
        return isinstance(value, (int, float)) and not math.isfinite(value)
    except OverflowError:
        return True


def _is_plain(annotation: Any, value: Any) -> bool:
    """Whether a value is an instance of a class; a boolean is no number."""
    if annotation is Any:
        return True
    accepted = (int, float) if annotation is float else annotation
    return isinstance(annotation, type) and type(value) is not bool and isinstance(value, accepted)


def _other_type(annotation: Any, value: Any, path: str, context: "Context") -> Fault:
    """The fault of a value of another type; the fix is its list, if that fits."""
    fix = ""
    for kind in (annotation, *get_args(annotation)):
        if get_origin(kind) in (list, tuple) and not any(mismatch(kind, [value], path, context)):
            fix = f"Try [{value if isinstance(value, str) else format_value(value)}]."
    rule = f"must be {type_phrase(type_name(annotation))}"
    return Fault(path, rule, got=format_value(value), fix=fix)


def nest(annotation: Any, value: Any) -> Any:
    """Builds the components nested in a value. Lists for a tuple become tuples, and whole numbers
    for a float become floats, so that `rate=1` builds the same as `rate=1.0`.
    """
    if (inner := nested(annotation)) is not None:
        value = inner.as_node(value)
        if not isinstance(value, Mapping):
            return value
        create = partial(inner.create, value)
        return create if get_origin(annotation) is Callable else create()
    origin, args = get_origin(annotation), get_args(annotation)
    if type(value) is int:
        kinds = args if origin in (Union, UnionType) else (annotation,)
        return float(value) if float in kinds and int not in kinds else value
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if origin in (Union, UnionType):
        for a in args:
            if nested(a) is not None or get_origin(a) in (tuple, list, dict):
                return nest(a, value)
    if origin in (list, tuple) and not isinstance(value, Mapping):
        kinds = args[:1] * len(value) if origin is list or args[1:] == (...,) else args
        return origin(nest(kind, item) for kind, item in zip(kinds, value, strict=True))
    if origin is dict and isinstance(value, Mapping):
        return {key: nest(args[1], item) for key, item in value.items()}
    return value


PLAIN = frozenset({NoneType, bool, int, float, str})  # most defaults are one of these


def holdable(value: Any) -> bool:
    """Whether YAML can hold a plain value."""
    if isinstance(value, Mapping):
        return all(map(holdable, value.values()))
    return all(map(holdable, value)) if isinstance(value, list) else type(value) in PLAIN


def to_plain(value: Any) -> Any:
    """Converts a default to plain data for YAML: tuples become lists, a nested component its node,
    a mapping a copy.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {k: to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    for base, registry in NESTED.items():
        if isinstance(value, base):
            name = str(registry.name_of(type(value)))
            return {"name": name} | {
                option: to_plain(getattr(value, option)) for option in registry.options(name)
            }
    return value
