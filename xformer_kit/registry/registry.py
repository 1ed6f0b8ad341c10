"""Registry of the components of one kind, whose signatures are the config schema.

A component is a class or function. Its keyword-only parameters are its options: their names, types
and defaults are the config schema. Its other parameters are passed by the model, by name. A frozen
dataclass has only options. The meaning or unit of an option is the comment after it in the source,
or a line `option: meaning` in the docstring.

A rare component is a file of its own, xformer_kit/zoo/<group>/<name>.py, that is imported the first
time the component is needed.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar

from xformer_kit.registry.checking import node_faults
from xformer_kit.registry.context import Context
from xformer_kit.registry.entries import Alias, Broken, InnerNode, Option
from xformer_kit.registry.fault import ConfigError, Fault, Faults, config_error, format_value
from xformer_kit.registry.messages import Options, nearest
from xformer_kit.registry.methods import check_methods
from xformer_kit.registry.node import Node
from xformer_kit.registry.option_types import (
    NESTED,
    PLAIN,
    holds_nested,
    nest,
    nested,
    nested_nodes,
    to_plain,
)
from xformer_kit.registry.schema import read_options
from xformer_kit.registry.signature import OptionGroup, option_groups, parameters
from xformer_kit.registry.zoo import zoo_modules

P = TypeVar("P")
_changes = 0


def registry_version() -> int:
    """Returns a number that increases with each change of a registry."""
    return _changes


def _count_change() -> None:
    global _changes
    _changes += 1


def _letters(name: str) -> str:
    """Returns a name in lower case with underscores, to compare names in any spelling."""
    return name.lower().replace("-", "_")


class Registry(Node):
    """Mapping from names to the components of one kind, e.g. every mask.

    The names include the components of xformer_kit/zoo, whose modules are imported on first use:
    `in`, `len` and iteration import nothing, `registry[name]` one file, `items` and `also_called`
    all files of the kind. The order is: the core and a user's components as registered, then the
    zoo by name.

    caller_arguments: class whose annotated fields are the parameters that the model passes by name
    (dim, depth, ...), each with a comment; every other parameter of a component is an option.
    base: class of the built component; an option annotated with it, or with a tuple or a dict of
    it, nests components of this kind.
    several: whether a config names any number of them, {name: options}, in place of one.
    switch: the components that false and true choose, if a boolean may replace a name.
    common: options that every component has in its config, and that no constructor receives; its
    `check` is called after the component's.

    Raises ConfigError with the nearest name for an unknown one.
    """

    def __init__(
        self,
        kind: str,
        caller_arguments: type = object,
        base: type | None = None,
        group: str | None = None,
        several: bool = False,
        switch: tuple[str, str] | None = None,
        common: type[OptionGroup] | None = None,
    ):
        self.kind = kind
        self.caller_arguments = caller_arguments
        self.group = group or kind
        self.several = several
        self.switch = switch
        self.common = common
        self.common_options = read_options(kind, common, ()) if common else {}
        self.refused_names: dict[str, Fault] = {}  # name that is no component's -> its fault
        # (component, error) of those that `register` refuses while a file is read; None: it raises
        self.refused: list[tuple[str, ConfigError]] | None = None
        self.zoo = zoo_modules(self.group.rpartition(".")[2])  # rare component -> its module
        self._components: dict[str, Any] = {}
        self._left_out = frozenset[str]()
        # other name that a config may use, of the components that are loaded -> what it means
        self.aliases: dict[str, Alias] = {}
        self._similar_names: dict[str, str] = {}  # that only a message answers -> own name
        self._options_of: dict[str, dict[str, Option]] = {}
        # Name -> (node of all defaults, options whose default is converted to plain data).
        self._defaults: dict[str, tuple[dict[str, Any], list[str]]] = {}
        self._nesting: dict[str, dict[str, Any]] = {}  # name -> {option that may hold some: type}
        self.base = base
        if base is not None:
            NESTED[base] = self
            nested.cache_clear()

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._components or name in self.zoo)

    def __iter__(self) -> Iterator[str]:
        own = [name for name in self._components if name not in self.zoo]
        yield from [name for name in own if name not in self._left_out]
        yield from self.zoo

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Any:
        self._load(name)
        return self._components[name]

    def get(self, name: Any, default: Any = None) -> Any:
        if name not in self:
            return default
        return self[name]

    @property
    def loaded(self) -> Node:
        """The components whose modules have been imported."""
        return MappingProxyType(self._components)

    @property
    def also_called(self) -> Mapping[str, str]:
        """{other name: own name} of all components, those that a config may use and those that
        only a message answers. Imports all files of the kind.
        """
        for name in self.zoo:
            self._load(name)
        return self._similar_names | {other: alias.name for other, alias in self.aliases.items()}

    def alias(self, name: Any) -> Alias | None:
        """Returns what another name that a config may use means; None for any other value. Imports
        all files of the kind for a name that no loaded component has.
        """
        if not isinstance(name, str) or name in self:
            return None
        return self.aliases.get(name) if name in self.aliases or self.also_called else None

    def name_of(self, component: Any) -> str | None:
        """Returns the name of a component that has been imported, or None."""
        return next((name for name, one in self._components.items() if one is component), None)

    def _load(self, name: str) -> None:
        """Imports a component of the zoo. Raises ConfigError for an unknown name."""
        if name not in self:  # a name that is no text, too
            raise ConfigError(self.unknown(name).at(self.group))
        if name in self._components:
            return
        importlib.import_module(self.zoo[name])
        if name not in self._components:
            raise ImportError(f"{self.zoo[name]} registers no {self.kind} '{name}'.")

    def register(
        self,
        name: str,
        also_called: Iterable[str] | Mapping[str, Any] = (),
        similar: Iterable[str] = (),
    ) -> Callable[[P], P]:
        """Class or function decorator that registers a component. Raises ConfigError for a name
        that is registered already and for a signature that is no schema.

        also_called: other names that a config may use, or {other name: options that it implies}.
        similar: names of something related, which a message answers with `name`.
        """

        def add(component: P) -> P:
            try:
                options = self._read_new(name, component)
            except ConfigError as error:
                if self.refused is None:
                    raise
                self.refused.append((f"{self.group} {name}", error))
                return component
            self._options_of[name] = options
            defaults = {"name": name} | {key: option.default for key, option in options.items()}
            converted = [key for key in options if type(defaults[key]) not in PLAIN]
            self._defaults[name] = defaults, converted
            self._components[name] = component
            _count_change()
            implied = also_called if isinstance(also_called, Mapping) else {}
            self.aliases |= {other: Alias(name, implied.get(other, {})) for other in also_called}
            self._similar_names |= dict.fromkeys(similar, name)
            return component

        return add

    def forget(self, module: str) -> None:
        """Removes the components that a module registered, so that it can be imported again."""
        _count_change()
        for name in [
            name for name, component in self._components.items() if component.__module__ == module
        ]:
            del self._components[name], self._options_of[name], self._defaults[name]
            self._nesting.pop(name, None)
            self.aliases = {k: alias for k, alias in self.aliases.items() if alias.name != name}
            self._similar_names = {k: own for k, own in self._similar_names.items() if own != name}

    @contextmanager
    def leaving_out(self, names: Iterable[str]) -> Iterator[None]:
        """Leaves these components out of iteration within the context; their names are still
        found.
        """
        self._left_out = frozenset(names)
        _count_change()  # a choice among all components may now be another one
        try:
            yield
        finally:
            self._left_out = frozenset()
            _count_change()

    def options(self, name: str) -> dict[str, Option]:
        """Returns every option of a component, in the order of its signature."""
        self._load(name)
        return self._options_of[name]

    def defaults(self, name: str) -> dict[str, Any]:
        """Returns a complete config node of the component: its name and the default of every
        option.
        """
        return self.complete({"name": name})

    def as_node(self, node: Any) -> Any:
        """Returns {"name": name} for a name, and for a boolean the component that it chooses
        (`switch`); anything else unchanged.
        """
        node = self.switch[node] if self.switch and isinstance(node, bool) else node
        return {"name": node} if isinstance(node, str) else node

    def complete(self, node: Any) -> dict[str, Any]:
        """Returns the node, or a name as a node, with the defaults of the options it does not
        set.
        """
        node = self.as_node(node)
        self._load(name := node["name"])
        defaults, converted = self._defaults[name]
        plain = {key: to_plain(defaults[key]) for key in converted if key not in node}
        return {**defaults, **plain, **node}  # in the order of the options

    def inner(self, name: str) -> dict[str, "Registry"]:
        """Returns {option: registry} of the options of a component that are one component."""
        found = {option: nested(kind) for option, kind in self.nesting(name).items()}
        return {option: registry for option, registry in found.items() if registry is not None}

    def nesting(self, name: str) -> dict[str, Any]:
        """Returns {option: type} of the options of a component that may hold components."""
        if name not in self._nesting:
            types = {option: each.type for option, each in self.options(name).items()}
            self._nesting[name] = {k: t for k, t in types.items() if holds_nested(t) is not None}
        return self._nesting[name]

    def nested(self, node: Node) -> Iterator[tuple[str, "Registry", dict[str, Any]]]:
        """Yields (option, registry, complete node) of each component inside a complete node; an
        option may hold several.
        """
        for option, kind in self.nesting(node["name"]).items():
            yield from nested_nodes(kind, node.get(option), option)

    def with_inner(self, node: Any) -> dict[str, Any]:
        """Returns the complete node, in which each option that is a component is an `InnerNode`."""
        node = self.complete(node)
        for path, registry, inner in self.nested(node):
            if path in node:
                node[path] = InnerNode(registry, inner)
        return node

    def cannot(self, node: Any, context: Context) -> Faults:
        """Yields why a component, or one nested in it, cannot be composed with its context; the
        paths are relative to the node.
        """
        node = self.with_inner(node)
        component, options = self[node["name"]], Options(**node)
        if hasattr(component, "cannot"):
            yield from component.cannot(options, context)
        for path, registry, inner in self.nested(node):
            inside = context.changed(outer=options)
            yield from (fault.at(path) for fault in registry.cannot(inner, inside))

    def broken_laws(self, node: Any) -> dict[str, Broken]:
        """Returns {law: reason} of the laws that a component, or one nested in it, breaks: their
        `breaks`, a mapping, or a function of their options.
        """
        node = self.complete(node)
        name = node["name"]
        breaks = getattr(self[name], "breaks", {})
        reasons = breaks(Options(**node)) if callable(breaks) else breaks
        found = {law: Broken(reason, self.kind, name) for law, reason in reasons.items()}
        for path, registry, inner in self.nested(node):
            inside = registry.broken_laws(inner)
            found |= {law: broken._replace(option=path) for law, broken in inside.items()}
        return found

    def model_arguments(self, name: str) -> list[str]:
        """Returns the names of the parameters that the model passes to a component."""
        component = self[name]
        options = self._options_of[name].keys() | option_groups(component)
        return [p for p in parameters(component) if p not in options]

    def create(self, node: Any, **arguments: Any) -> Any:
        """Builds a component from a node of its config; arguments: those that the model passes, of
        which a component gets the ones in its signature.
        """
        node = {k: v for k, v in self.as_node(node).items() if k not in self.common_options}
        component, options = self[name := node.pop("name")], self.options(name)
        chosen = {key: nest(options[key].type, value) for key, value in node.items()}
        for key, group in option_groups(component).items():
            own = parameters(group).keys() & chosen.keys()
            chosen[key] = group(**{option: chosen.pop(option) for option in own})
        return component(
            **{key: arguments[key] for key in self.model_arguments(name) if key in arguments},
            **chosen,
        )

    def unknown(self, name: object, own_file: str = "") -> Fault:
        """Returns the fault of an unknown name; its path is that of the node. own_file: a sentence
        on a component of the user's own, if no name is similar.
        """
        if (fault := self.refusal(name)) is not None:
            return fault
        own = self.find_name(name)
        if own is not None and name in self.aliases:
            return Fault("", f"'{name}' is called '{own}' here")
        near = own or self._similar(str(name))
        meant = f"Did you mean '{near}'? " if near else ""
        fix = f"{meant}Known: {', '.join(sorted(self))}."
        fault = Fault("", f"no {self.kind} is called {format_value(name)}", fix=fix)
        return fault if near else fault.with_fix(own_file)

    def refusal(self, name: object) -> Fault | None:
        """Returns the fault of one of `refused_names`, in any spelling; None for another name."""
        faults = {_letters(refused): fault for refused, fault in self.refused_names.items()}
        return faults.get(_letters(str(name)))

    def _similar(self, name: str) -> str | None:
        """Returns the name that a config may use, a component's own or another one of it, that is
        most similar to an unknown name.
        """
        found = nearest(name, [*sorted(self), *self.also_called])
        own = self.also_called.get(found or "", found)
        is_spelling = found is not None and own is not None and own.replace("_", "") == found
        return own if is_spelling or found not in self.aliases else found

    def find_name(self, name: object) -> str | None:
        """Returns the component with this name or other name, in any spelling: MultiHead,
        multi-head, mha. None if there is none.
        """
        if not isinstance(name, str):
            return None
        if name in self:
            return name
        names = {_letters(word): own for word, own in self.also_called.items()}
        return (names | {_letters(own): own for own in self}).get(_letters(name))

    faults = node_faults

    def override_for(self, name: str, path: str = "") -> str:
        """Returns the override that chooses a component, such as mask=causal; at a config path
        such as model.decoder.mask, if an override can set a component there.
        """
        place = path.rpartition(".")[2] in (self.group.rpartition(".")[2], "cross")
        at = path if place and ".layout." not in path else self.group
        return f"{self.group}.{name}={{}}" if self.several else f"{at}={name}"

    def _read_new(self, name: str, component: Any) -> dict[str, Option]:
        """Returns the options of a component with a new name. Raises ConfigError for a name that is
        registered already.
        """
        if (
            name in self._components
            or self.zoo.get(name, component.__module__) != component.__module__
        ):
            raise config_error(
                f"{self.kind} '{name}'",
                "is registered twice",
                fix="Give one of them another name.",
            )
        check_methods(f"{self.kind} '{name}'", component, self.base)
        passed = tuple(inspect.get_annotations(self.caller_arguments))
        return read_options(f"{self.kind} '{name}'", component, passed) | self.common_options
