"""Weights of a published model into ours, and ours into files of theirs."""

from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xformer_kit.hub.family import Family, family_of
from xformer_kit.hub.files import WeightFiles, read_config_json
from xformer_kit.hub.layouts import SAME
from xformer_kit.hub.weights import Match, matches
from xformer_kit.model.model import Model
from xformer_kit.plan import ModelPlan
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.tensors import parameter_table, training_buffers

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
    of_training = training_buffers(model)
    for name, tensor in model.state_dict().items():
        if name in of_training:
            continue
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
    """Sets the weights of a model to those of a directory. Raises ConfigError for a tensor that is
    missing, has no partner, or has another shape, and then sets none.

    A tensor that ours has as it is shares the memory of its file, which is read when it is used.
    """
    table = table_of(family, model, plan)
    name_in_file = {name: _found(name, family, files.shapes) for name in expected_shapes(table)}
    if faults := list(_faults(files, family, table, name_in_file)):
        raise config_error(files.folder, "; ".join(faults), fix="Bring the files of one model.")
    own = model.state_dict()
    there = {
        id(match)
        for match in table.matches
        if all(name_in_file[name] in files.shapes for name in match.theirs)
    }
    shared = {id(m) for m in table.matches if m.layout is SAME and _fits(m, table, own)}
    # Those that are copied last: their part of a file is given back, that of the others is not.
    present = [match for match in table.matches if id(match) in there]
    ordered = sorted(present, key=lambda match: id(match) not in shared)
    groups = ([name_in_file[name] for name in match.theirs] for match in ordered)
    state: dict[str, Tensor] = {}
    for match, tensors in zip(ordered, files.read(groups), strict=True):
        rows = [table.shapes[name][0] for name in match.ours]
        values = match.layout.read(tensors, rows, match.heads)
        for name, value in zip(match.ours, values, strict=True):
            if id(match) in shared and value.dtype == own[name].dtype:
                state[name] = value
            else:
                state[name] = torch.zeros_like(own[name])
                state[name][: len(value)] = value
    others = {name for match in table.matches for name in match.ours} - state.keys()
    others |= training_buffers(model)
    state |= {name: torch.zeros_like(own[name]) for name in others}
    model.load_state_dict(state, strict=False, assign=True)


def _found(name: str, family: Family, names: Container[str]) -> str:
    """The name of a tensor in a file, which may be old or lack the prefix."""
    old = name
    for part, before in family.renamed:
        old = old.replace(part, before)
    own = name if name in names or old == name else old
    return own if own in names else own.removeprefix(family.prefix)


def _fits(match: Match, table: Table, own: Mapping[str, Tensor]) -> bool:
    """Whether our tensors have no rows that pad the vocabulary."""
    return all(own[name].shape == table.shapes[name] for name in match.ours)


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
    shapes = {name: files.shapes.get(name_in_file[name], shape) for name, shape in expected.items()}
    others = [
        f"{name} of the shape {shapes[name]}, where config.json implies {shape}"
        for name, shape in expected.items()
        if shapes[name] != shape
    ]
    if others:
        yield f"has {_listed(others)}"


def config_of(folder: Path) -> dict[str, Any]:
    """Returns the config.json of a directory of transformers; tie_word_embeddings is false if its
    files have a head that differs from the embedding, as transformers reads it.
    """
    config = read_config_json(folder)
    with suppress(ConfigError):  # of the weights, which are read later, or of the family
        is_tied = config.get("tie_word_embeddings", True) in (True, None)
        if is_tied and _has_own_head(WeightFiles(folder), family_of(config)):
            config["tie_word_embeddings"] = False
    return config


def _has_own_head(files: WeightFiles, family: Family) -> bool:
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
