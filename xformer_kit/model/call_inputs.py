"""The inputs of a call of a model that are no ids: embeddings, and arguments of other libraries."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from xformer_kit.registry import ConfigError, Fault, config_error, other_argument, suggestion
from xformer_kit.tensors.ids import checked_ids, number_outside
from xformer_kit.tensors.tokens import Tokens

NO_ID = -1  # of a token that is given as an embedding


def refuse_arguments(call: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raises ConfigError for arguments that a call of a model does not have, if there are any."""
    if not arguments:
        return
    known = [key for key in inspect.signature(call).parameters if key not in ("self", "other")]
    raise ConfigError(
        other_argument("forward", name, value)
        or Fault(name, "the model has no such argument", fix=suggestion(name, known, "It has"))
        for name, value in arguments.items()
    )


def check_vocabulary(name: str, ids: Tensor, size: int) -> None:
    """Raises IndexError for ids outside the vocabulary, where they can be read without waiting for
    a device or breaking a graph.
    """
    if type(ids) is not Tensor or not ids.is_cpu or torch.compiler.is_compiling():
        return
    if (got := number_outside(ids, size)) is not None:
        raise IndexError(f"{name}: must be ids of the vocabulary, 0 to {size - 1}; got {got}.")


def tokens_of(given: Any, embeds: Tensor | None, channels: int, size: int) -> Tokens:
    """Returns the tokens of ids (b, t) of a vocabulary, of embeddings (b, t, channels), or of both;
    `given` may be Tokens already. Raises ConfigError for inputs of another shape or type.
    """
    if isinstance(given, Tokens):
        return given if embeds is None else given._replace(ids=_ids_of(embeds, given.ids, channels))
    if given is not None or embeds is None:
        given = checked_ids("ids", given)
        check_vocabulary("ids", given, size)
    return Tokens(ids=given if embeds is None else _ids_of(embeds, given, channels))


def _ids_of(embeds: Any, ids: Tensor | None, channels: int) -> Tensor:
    """Returns the ids of embeddings: the given ones, else NO_ID."""
    is_tensor = isinstance(embeds, Tensor)
    if not is_tensor or not embeds.is_floating_point() or embeds.shape[2:] != (channels,):
        raise config_error(
            "inputs_embeds",
            f"must be a tensor (batch, tokens, {channels}) of floats",
            got=f"{tuple(embeds.shape)} of {embeds.dtype}" if is_tensor else type(embeds).__name__,
            fix="Try model.embed(ids).",
        )
    shape = embeds.shape[:2]
    if ids is None:
        return torch.full(shape, NO_ID, device=embeds.device)
    if ids.shape != shape:
        rule = "must have the rows and tokens of ids"
        raise config_error("inputs_embeds", rule, got=f"{tuple(shape)} and {tuple(ids.shape)}")
    return ids


def without_ids(stack: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the stack for tokens that may have NO_ID; it raises ConfigError if a component looks
    ids up.
    """

    def call(*inputs: Any) -> Any:
        try:
            return stack(*inputs)
        except IndexError:
            rule, fix = "a component looks up the ids of the tokens", "Give the ids next to them."
            raise config_error("inputs_embeds", rule, fix=fix) from None

    return call


def check_length(tokens: Tokens, cache: Any, limit: int, name: str) -> None:
    """Raises ConfigError for more tokens than `limit`, with those in the cache."""
    length = tokens.length + (0 if cache is None else cache.length)
    if length > limit:
        raise config_error(
            "model.max_len",
            f"the {name}'s positions end at {limit} tokens",
            got=length,
            fix="Give fewer, or build it with a larger model.max_len.",
        )
