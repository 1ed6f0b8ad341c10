"""In what do two models differ? Values of their configs, costs, kernels, and parameters, before
either is built.

Plain data, from two valid configs alone.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from xformer_kit.config.check import registry_at
from xformer_kit.config.difference import differing, flat
from xformer_kit.inspect.describe import Description, describe, vocabulary
from xformer_kit.inspect.tree import ranges
from xformer_kit.model.build import build_model

Config = Mapping[str, Any]
Shape = tuple[int, ...]
MISSING = object()  # a value that one of the two configs has no place for


class Pair(NamedTuple):
    """One thing of both models; None where one lacks it."""

    name: str
    one: Any
    other: Any


class Tensors(NamedTuple):
    """Parameters of one name and shape in some layers, such as decoder.0-5.attn.q.weight."""

    name: str
    one: Shape | None  # None where the first model has none of that name
    other: Shape | None
    number: int  # of layers, or 1


class Difference(NamedTuple):
    # of the configs; where the names of a component differ, of its options those that are no
    # defaults
    values: list[Pair]
    costs: list[Pair]  # all of them, also those that are the same
    kernels: list[Pair]
    tensors: list[Tensors]  # that not both have in one shape
    # numbers in parameters of one name and shape: with one seed and one init they start equal
    shared: int
    unknown: list[str]  # sentences: figures that could not be had, and why


def diff(
    one: Config, other: Config, vocabularies: tuple[int | None, int | None] = (None, None)
) -> Difference:
    """Everything in which two models differ. `vocabularies` stand in for the tokenizers'.

    Raises ConfigError where the size of a vocabulary is not known.
    """
    given = zip((one, other), vocabularies, strict=True)
    pairs = [(config, size or vocabulary(config)) for config, size in given]
    found, shapes = [describe(*pair) for pair in pairs], [_shapes(*pair) for pair in pairs]
    shared = [name for name, shape in shapes[0].items() if shapes[1].get(name) == shape]
    return Difference(
        list(_values(one, other)),
        list(_costs(*found)),
        [pair for pair in _kernels(*found) if pair.one != pair.other],
        list(_tensors(*shapes)),
        sum(torch.Size(shapes[0][name]).numel() for name in shared),
        list(dict.fromkeys(found[0].unknown + found[1].unknown)),
    )


def _values(one: Config, other: Config) -> Iterator[Pair]:
    plain = [dict(_leaves(config)) for config in (one, other)]
    for path in differing(plain):
        if path in ("name", "logger.name"):  # neither is of the model
            continue
        chosen = _given(path, plain) if path.endswith(".name") else []
        for key in (path, *chosen):
            yield Pair(key.removesuffix(".name"), *(values.get(key, MISSING) for values in plain))


def _leaves(config: Config) -> Iterator[tuple[str, Any]]:
    """(path, value) of every value; a component that stands as a bare name has the path of the
    name.
    """
    for path, value in flat(config):
        registry = registry_at(path)
        yield from flat(value if registry is None else registry.as_node(value), path)


def _given(name: str, plain: Sequence[Config]) -> list[str]:
    """Paths of the options of two components in one place that differ, and not from default to
    default. `name` is the path of their names.
    """
    node = name.removesuffix("name")
    usual = [_usual(node, values) for values in plain]
    paths = [p for p in dict.fromkeys(itertools.chain(*plain)) if p.startswith(node) and p != name]
    return [
        path
        for path in paths
        if plain[0].get(path, MISSING) != plain[1].get(path, MISSING)
        and any(
            path in values and values[path] != defaults.get(path, MISSING)
            for values, defaults in zip(plain, usual, strict=True)
        )
    ]


def _usual(node: str, values: Config) -> Config:
    """The defaults of the component at `node` and of the components inside it."""
    found: dict[str, Any] = {}
    names = [path for path in values if path.startswith(node) and path.endswith(".name")]
    for path in sorted(names, key=len):  # the outer one decides which component stands inside
        place, component = path.removesuffix(".name"), values[path]
        registry = registry_at(place)
        if registry is not None and component in registry:
            found = dict(flat(registry.defaults(component), place)) | found
    return found


def _costs(one: Description, other: Description) -> Iterator[Pair]:
    def of(name: str, figure: Any) -> Pair:
        return Pair(name, figure(one), figure(other))

    yield of("parameters", lambda found: found.tree.parameters)
    if any(found.active < found.tree.parameters for found in (one, other)):
        yield of("active parameters", lambda found: found.active)
    yield of("FLOPs per token, forward", lambda found: found.forward)
    yield of("FLOPs per token, training", lambda found: found.training)
    yield of(
        "memory, peak of training",
        lambda found: found.training_memory and found.training_memory.peak,
    )
    yield of("memory, cache per token", lambda found: found.cache.per_token)


def _kernels(one: Description, other: Description) -> Iterator[Pair]:
    each = [{choice.where: choice.kernel for choice in found.kernels} for found in (one, other)]
    for where in dict.fromkeys([*each[0], *each[1]]):
        yield Pair(where, *(kernels.get(where) for kernels in each))


def _shapes(config: Config, vocab_size: int) -> dict[str, Shape]:
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _tensors(one: Mapping[str, Shape], other: Mapping[str, Shape]) -> Iterator[Tensors]:
    """Those that differ, layers of which are alike in one line."""
    layers: dict[tuple[str, Shape | None, Shape | None], list[int]] = {}
    for name in dict.fromkeys([*one, *other]):
        pair = one.get(name), other.get(name)
        if pair[0] != pair[1]:
            found = re.match(r"(\w+\.(?:position\.layer_)?)(\d+)(\..*)", name)
            folded = f"{found[1]}*{found[3]}" if found else name
            layers.setdefault((folded, *pair), []).append(int(found[2]) if found else -1)
    for (name, mine, theirs), depths in layers.items():
        yield Tensors(
            name.replace("*", ranges(depths), 1) if "*" in name else name, mine, theirs, len(depths)
        )
