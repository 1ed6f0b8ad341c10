"""Copies the weights of one model into another, which may have other layers or another vocabulary.

Tensors are matched by name. A tensor fits if its shape is the same. The rows of a vocabulary's
tensor, such as the embedding, are matched by token.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from xformer_kit.optim.freezing import matches, unmatched
from xformer_kit.registry import Fault, Faults, did_you_mean
from xformer_kit.tensors import ParameterInfo, parameter_table
from xformer_kit.text.tensor_lists import grouped

PATH = "init_from.run"


@dataclass(frozen=True)
class Transfer:
    """How the tensors of a model are taken from a saved state."""

    copied: dict[str, Tensor]  # name -> value, of the shape in the model
    missing: list[str]  # in the model only: they keep their initial values
    unused: list[str]  # in the state only
    reshaped: list[str]  # in both, with other shapes: they keep their initial values
    resized: dict[str, str]  # in both, with other shapes: how they were made to fit
    faults: list[Fault]


def rows_of_tokens(own: Sequence[Any], others: Sequence[Any]) -> list[tuple[int, int]]:
    """Returns (own id, id in `others`) of each token that both vocabularies have. A token is its
    bytes, or the name of a special token.
    """
    ids = {token: at for at, token in reversed(list(enumerate(others)))}
    return [
        (at, at if at < len(others) and others[at] == token else ids[token])
        for at, token in enumerate(own)
        if token in ids
    ]


def plan_transfer(
    model: Any,
    state: Mapping[str, Tensor],
    rows: Mapping[str, list[tuple[int, int]]],
    allow: Collection[str] | None = (),
    added: Collection[str] = (),
) -> Transfer:
    """Returns how `model` starts from a saved state, with the fault of each tensor that does not
    fit and whose name matches no pattern of `allow`; None allows all of them.

    rows: name of each tensor of a vocabulary -> its rows, see `rows_of_tokens`; its other rows keep
    their initial values. added: tensors of the model that no state has, such as adapters: they keep
    their initial values and are not missing.
    """
    own = dict(model.state_dict())
    copied, reshaped, resized = dict[str, Tensor](), list[str](), dict[str, str]()
    infos = parameter_table(model)
    for name in (name for name in own if name in state):
        value = _fitting(own[name], state[name], rows.get(name))
        if value is None and (found := _resized(model, name, state[name], infos.get(name))):
            resized[name], value = found
        if value is None:
            reshaped.append(name)
        else:
            copied[name] = value
    lists = {
        "missing": [n for n in own if n not in state and n not in added],
        "unused": [n for n in state if n not in own],
        "reshaped": reshaped,
    }
    unfit: Faults = iter(())
    if not copied:
        unfit = _nothing_fits(own, state)
    elif allow is not None:
        differing = {**lists, "reshaped": [*reshaped, *resized]}
        unfit = _unfit(differing, own, state, allow)
    faults = [*unfit, *_unmatched(allow or (), [*own, *state])]
    return Transfer(copied, **lists, resized=resized, faults=faults)


def _resized(
    model: Any, name: str, value: Tensor, info: ParameterInfo | None
) -> tuple[str, Tensor] | None:
    """Returns how a tensor of another shape fits, and its value: key heads that are averaged or
    repeated, or positions that are cut or continue with initial values. None if it does not.
    """
    own = dict(model.state_dict())[name]
    axis = (info.axes or ("",))[0] if info else ""
    if axis == "positions" and own.shape[1:] == value.shape[1:]:
        count = min(len(own), len(value))
        result = own.clone()
        result[:count] = value[:count].to(result)
        return f"{count:,} of {len(own):,} positions are copied", result
    of_heads = axis in ("kv_heads*head_dim", "kv_heads*v_head_dim")
    if not of_heads or own.shape[1:] != value.shape[1:]:
        return None
    attention = model.get_submodule(name.rpartition(".")[0].rpartition(".")[0])
    channels = attention.head_dim if axis.endswith("*head_dim") else attention.v_head_dim
    now, before = len(own) // channels, len(value) // channels
    if max(now, before) % min(now, before) or len(value) % channels:
        return None
    heads = value.unflatten(0, (before, channels))
    if before > now:
        averaged = heads.unflatten(0, (now, -1)).mean(1)
        return f"{before} key heads are averaged into {now}", averaged.flatten(0, 1)
    repeated = heads.repeat_interleave(now // before, 0)
    return f"{before} key heads are repeated {now // before} times", repeated.flatten(0, 1)


def _fitting(own: Tensor, value: Tensor, rows: list[tuple[int, int]] | None) -> Tensor | None:
    """Returns the value of a model's tensor from that of a state; None if its shape is another."""
    if rows is None or own.ndim == 0:
        return value if value.shape == own.shape else None
    if own.shape[1:] != value.shape[1:]:
        return None
    result = own.clone()
    if rows:
        to, from_ = torch.tensor(rows).unbind(1)
        if int(to.max()) >= len(own) or int(from_.max()) >= len(value):
            return None
        result[to] = value[from_].to(result)
    return result


def _unfit(
    lists: Mapping[str, list[str]],
    own: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    allow: Collection[str],
) -> Faults:
    """Yields one fault with the names of all tensors that do not fit and are not allowed."""
    shapes = {n: f" {tuple(own[n].shape)} here, {tuple(state[n].shape)} there"
              for n in lists["reshaped"]}  # fmt: skip
    titles = {
        "missing": "missing there",
        "unused": "not used here",
        "reshaped": "of another shape",
    }
    texts, patterns = [], list[str]()
    for key, title in titles.items():
        names = [name for name in lists[key] if not matches(name, allow)]
        every = () if key == "reshaped" else {**own, **state}
        groups = list(grouped(names, every))
        patterns += [pattern for pattern, _ in groups]
        shown = ", ".join(
            f"{pattern}{f' ({len(group)})' * (len(group) > 1)}{shapes.get(group[0], '')}"
            for pattern, group in groups
        )
        texts += [f"{title}: {shown}"] if names else []
    if texts:
        rule = f"has not the tensors of this model; {'; '.join(texts)}"
        allowed = ",".join(dict.fromkeys([*allow, *patterns]))
        fix = f"To leave them out, set 'init_from.allow=[{allowed}]'."
        yield Fault(PATH, rule, fix=fix)


def _nothing_fits(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Faults:
    """Yields the fault of a state of which no tensor fits, with one tensor that both have."""
    example = next(
        (
            f", such as {name}: {tuple(own[name].shape)} here, {tuple(state[name].shape)} there"
            for name in own
            if name in state
        ),
        "",
    )
    yield Fault(PATH, f"has no tensor that fits this model{example}")


def _unmatched(allow: Collection[str], names: Collection[str]) -> Faults:
    """Yields the fault of each pattern that matches no tensor."""
    for pattern in unmatched(allow, names):
        fix = f"{did_you_mean(pattern, names)}Correct it, or leave it out."
        yield Fault("init_from.allow", "matches no tensor of the two models", pattern, fix)
