"""Weights of a published model into ours, and ours into files of theirs."""

from collections.abc import Container, Iterator, Mapping
from fnmatch import fnmatch
from typing import NamedTuple

import torch
from torch import Tensor

from xformer_kit.hub.family import Family
from xformer_kit.hub.files import WeightFiles
from xformer_kit.hub.weights import Match, matches
from xformer_kit.model.model import Model
from xformer_kit.plan import ModelPlan
from xformer_kit.registry import config_error
from xformer_kit.tensors import parameter_table

MAX_LISTED = 6  # names in a message


class Table(NamedTuple):
    """The table of a family for one model."""

    matches: list[Match]
    shapes: dict[str, tuple[int, ...]]  # of our tensors, without rows that pad the vocabulary


def table_of(family: Family, model: Model, plan: ModelPlan) -> Table:
    """Returns the table of a family for a model, also one on the meta device. Raises ConfigError if
    a tensor of ours has no partner.
    """
    infos, shapes = parameter_table(model), {}
    for name, tensor in model.state_dict().items():
        axes = infos[name].axes if name in infos else None
        axes = ("vocab",) if name == "head.bias" else axes  # a fixed one is no parameter
        rows = {"vocab": model.vocab_size, "source_vocab": model.source_vocab_size}
        first = rows.get((axes or ("",))[0], tensor.shape[0] if tensor.ndim else 0)
        shapes[name] = (first, *tensor.shape[1:]) if tensor.ndim else ()
    found = list(matches(family.weights, shapes, plan))
    if lost := shapes.keys() - {name for match in found for name in match.ours}:
        rule = f"has no tensor in the family's files: {_listed(sorted(lost))}"
        raise config_error("model", rule, fix="The composition is not of this family.")
    return Table(found, shapes)


def load_weights(files: WeightFiles, family: Family, model: Model, plan: ModelPlan) -> None:
    """Copies the weights of a directory into a model. Raises ConfigError for a tensor that is
    missing, has no partner, or has another shape, and then copies nothing.
    """
    table = table_of(family, model, plan)
    name_in_file = {name: _found(name, family, files.shapes) for name in expected_shapes(table)}
    if faults := list(_faults(files, family, table, name_in_file)):
        raise config_error(files.folder, "; ".join(faults), fix="Bring the files of one model.")
    own = model.state_dict()
    there = [
        match
        for match in table.matches
        if all(name_in_file[name] in files.shapes for name in match.theirs)
    ]
    groups = ([name_in_file[name] for name in match.theirs] for match in there)
    with torch.no_grad():
        for match, tensors in zip(there, files.read(groups), strict=True):
            _copy(match, tensors, table, own)
        for match in table.matches:
            for name in match.ours if match not in there else ():
                own[name].zero_()


def _found(name: str, family: Family, names: Container[str]) -> str:
    """The name of a tensor in a file, which may be old or lack the prefix."""
    old = name
    for part, before in family.renamed:
        old = old.replace(part, before)
    own = name if name in names or old == name else old
    return own if own in names else own.removeprefix(family.prefix)


def _copy(match: Match, tensors: list[Tensor], table: Table, own: Mapping[str, Tensor]) -> None:
    rows = [table.shapes[name][0] for name in match.ours]
    for name, value in zip(match.ours, match.layout.read(tensors, rows, match.heads), strict=True):
        target = own[name]
        target[: len(value)].copy_(value)
        target[len(value) :].zero_()


def written(table: Table, model: Model) -> Iterator[tuple[str, Tensor]]:
    """Yields the name and the value of each tensor of the files of a model."""
    own = model.state_dict()
    for match in table.matches:
        ours = [own[name][: table.shapes[name][0]] for name in match.ours]
        yield from zip(match.theirs, match.layout.write(ours, match.heads), strict=True)


def expected_shapes(table: Table) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that the tensors of a file must have, by their names."""
    found: dict[str, tuple[int, ...]] = {}
    for match in table.matches:
        ours = [torch.empty(table.shapes[name], device="meta") for name in match.ours]
        theirs = match.layout.write(ours, match.heads)
        found |= {n: tuple(t.shape) for n, t in zip(match.theirs, theirs, strict=True)}
    return found


def _faults(
    files: WeightFiles, family: Family, table: Table, name_in_file: Mapping[str, str]
) -> Iterator[str]:
    """Yields what is wrong with the tensors of a directory: those that are missing, have no
    partner, or have another shape.
    """
    expected = expected_shapes(table)
    missing = [
        name
        for name in expected
        if name_in_file[name] not in files.shapes
        and not any(fnmatch(name, pattern) for pattern in family.zero)
    ]
    if missing:
        yield f"lacks {_listed(missing)}"
    repeated = dict(family.tied)
    more = [
        name
        for name in files.shapes.keys() - name_in_file.values()
        if not any(fnmatch(name, pattern) for pattern in family.unused)
        and not _repeats(files, name, name_in_file.get(repeated.get(name, "")))
    ]
    if more:
        yield f"has {_listed(sorted(more))}, which the composition does not have"
    for name, shape in expected.items():
        got = files.shapes.get(name_in_file[name], shape)
        if got != shape:
            yield f"has {name} of the shape {got}, where config.json says {shape}"
            return


def has_own_head(files: WeightFiles, family: Family) -> bool:
    """Whether the files have a head that differs from the embedding: transformers then does not tie
    them, whatever config.json says.
    """
    heads = {weight.theirs for weight in family.weights if weight.ours == "head.weight"}
    return any(
        name in files.shapes and other in files.shapes and not _repeats(files, name, other)
        for name, other in family.tied
        if name in heads
    )


def _repeats(files: WeightFiles, name: str, other: str | None) -> bool:
    """Whether a tensor of a file equals another one, as a tied head the embedding."""
    if other not in files.shapes:
        return False
    one, two = next(files.read([[name, str(other)]]))
    return torch.equal(one, two)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
