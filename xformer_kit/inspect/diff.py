"""Differences between two models before either is built: values of their configs, costs, kernels,
and parameters.

Returns plain data from two valid configs.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from xformer_kit.config.options.groups import registry_at
from xformer_kit.config.saved.difference import differing, flat
from xformer_kit.inspect.describe import Description, describe
from xformer_kit.inspect.layers import format_ranges, group_equal
from xformer_kit.inspect.vocabulary import vocabulary
from xformer_kit.model.build import build_model

Config = Mapping[str, Any]
Shape = tuple[int, ...]
MISSING = object()  # the value of an option that one of the two configs does not have


class Pair(NamedTuple):
    """A value, figure or kernel of both models; None if one model has none."""

    name: str
    one: Any
    other: Any


class ParameterShapes(NamedTuple):
    """Parameters of one name and shape in some layers, such as decoder.0-5.attn.q.weight."""

    name: str
    one: Shape | None  # None if the first model has no parameter of that name
    other: Shape | None
    number: int  # of layers, or 1


class Difference(NamedTuple):
    # Values that differ. If the names of a component differ, only those of its options that one of
    # the configs sets to another value than the default.
    values: list[Pair]
    costs: list[Pair]  # all of them, also equal ones
    kernels: list[Pair]  # those that differ
    tensors: list[ParameterShapes]  # parameters whose shapes differ
    # Number of elements in parameters of equal name and shape; with the same seed and init, their
    # initial values are equal.
    shared: int
    unknown: list[str]  # messages: which figures are None, and why


def diff(
    one: Config, other: Config, vocabularies: tuple[int | None, int | None] = (None, None)
) -> Difference:
    """Compares two models. `vocabularies`: sizes that replace those of the tokenizers.

    Raises ConfigError if the size of a vocabulary is not known.
    """
    pairs = [
        (config, size or vocabulary(config))
        for config, size in zip((one, other), vocabularies, strict=True)
    ]
    descriptions, shapes = [describe(*pair) for pair in pairs], [_shapes(*pair) for pair in pairs]
    return Difference(
        list(_values(one, other)),
        list(_costs(descriptions)),
        list(_kernels(descriptions)),
        list(_tensors(*shapes)),
        sum(
            torch.Size(shape).numel()
            for name, shape in shapes[0].items()
            if shapes[1].get(name) == shape
        ),
        list(dict.fromkeys(itertools.chain(*(found.unknown for found in descriptions)))),
    )


def _values(one: Config, other: Config) -> Iterator[Pair]:
    """The values that differ. Of components with different names, only the options that one of the
    configs sets to another value than the default.
    """
    configs = [dict(_values_by_path(config)) for config in (one, other)]
    defaults = [_defaults(config) for config in configs]
    comparable = {*differing(configs)}
    for path in dict.fromkeys(itertools.chain(*configs)):
        first, second = (config.get(path, MISSING) for config in configs)
        given = any(
            path in config and config[path] != usual.get(path, MISSING)
            for config, usual in zip(configs, defaults, strict=True)
        )
        of_model = path != "name" and not path.startswith("logger.")  # not of the run
        if first != second and of_model and (path in comparable or given):
            yield Pair(path.removesuffix(".name"), first, second)


def _values_by_path(config: Config) -> Iterator[tuple[str, Any]]:
    """(path, value) of every value; a component that is given as a bare name has the path
    `<component>.name`.
    """
    for path, value in flat(config):
        registry = registry_at(path)
        yield from flat(value if registry is None else registry.as_node(value), path)


def _defaults(config: Config) -> Config:
    """The defaults of all components of a flat config, by path."""
    defaults: dict[str, Any] = {}
    names = [path for path in config if path.endswith(".name")]
    for path in sorted(names, key=len):  # the outer component determines the inner ones
        place, component = path.removesuffix(".name"), config[path]
        registry = registry_at(place)
        if registry is not None and component in registry:
            defaults = dict(flat(registry.defaults(component), place)) | defaults
    return defaults


def _costs(descriptions: Sequence[Description]) -> Iterator[Pair]:
    figures: dict[str, Callable[[Description], float | None]] = {
        "parameters": lambda found: found.tree.parameters,
        "active parameters": lambda found: found.active_parameters,
        "FLOPs per token, forward": lambda found: found.flops and found.flops.forward,
        "FLOPs per token, training": lambda found: found.flops and found.flops.training,
        "memory, peak of training": lambda found: (
            found.training_memory and found.training_memory.peak
        ),
        "memory, cache per token": lambda found: found.cache.per_token,
    }
    if all(found.active_parameters == found.tree.parameters for found in descriptions):
        del figures["active parameters"]
    for name, figure in figures.items():
        yield Pair(name, *map(figure, descriptions))


def _kernels(descriptions: Sequence[Description]) -> Iterator[Pair]:
    kernels = [{item.where: item.kernel for item in found.kernels} for found in descriptions]
    for where in dict.fromkeys(itertools.chain(*kernels)):
        pair = Pair(where, kernels[0].get(where), kernels[1].get(where))
        if pair.one != pair.other:
            yield pair


def _shapes(config: Config, vocab_size: int) -> dict[str, Shape]:
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _tensors(one: Mapping[str, Shape], other: Mapping[str, Shape]) -> Iterator[ParameterShapes]:
    """Parameters whose shapes differ; equal ones of several layers are one item."""
    changed = []
    for name in dict.fromkeys([*one, *other]):
        if one.get(name) != other.get(name):
            layer = re.match(r"(\w+\.(?:position\.layer_)?)(\d+)(\..*)", name)
            template = f"{layer[1]}{{}}{layer[3]}" if layer else name
            depth = int(layer[2]) if layer else 0
            changed.append((depth, (template, one.get(name), other.get(name))))
    for (template, *shapes), depths in group_equal(changed).items():
        name = template.format(format_ranges(depths))
        yield ParameterShapes(name, shapes[0], shapes[1], len(depths))
