"""Laws about devices: a step makes no tensor on another device, and reads no value from its own.

Both make a GPU wait for all operations in its queue, and are not possible under CUDA graphs. On the
meta device, where tensors have no values, both fail, without a GPU.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from xformer_kit.laws.composition import LENGTH, SOURCE, Composition
from xformer_kit.laws.registry import law
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import Node

MAX_RESULTS = 50_000  # of operations that are kept
CHUNKS = (slice(0, 5), slice(5, 6), slice(6, 10))  # a prompt, one token, several


class _OnlyMeta(TorchDispatchMode):
    """Raises RuntimeError for an operation that returns a tensor on another device than meta.

    An operation without effects is computed once for arguments of the same sizes: on meta, torch
    computes most of them in Python, which takes longer than values would.
    """

    _results: ClassVar[dict[Any, Any]] = {}

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Node | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        key = operation, _sizes(args), _sizes(tuple(kwargs.items()))
        if key in self._results:
            is_tensor, sizes = self._results[key]
            tensors = [_empty(*each) for each in sizes]
            return tensors[0] if is_tensor else tensors
        out = operation(*args, **kwargs)
        leaves = tree_leaves(out)
        for tensor in leaves:
            if isinstance(tensor, Tensor) and not tensor.is_meta:
                raise RuntimeError(
                    f"{operation} makes a tensor of {tuple(tensor.shape)} on {tensor.device}"
                )
        has_values = any(not isinstance(leaf, Tensor) for leaf in leaves)
        if not has_values and not _has_effects(operation):
            if len(self._results) >= MAX_RESULTS:
                self._results.clear()
            self._results[key] = isinstance(out, Tensor), _sizes(leaves)
        return out


def _sizes(value: Any) -> Any:
    """Returns sizes, type and device in place of each tensor, and the type of each other value."""
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype, value.device
    if isinstance(value, (list, tuple)):
        return tuple(map(_sizes, value))
    return type(value), value


def _empty(
    shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device=device)


@cache
def _has_effects(operation: Any) -> bool:
    """Whether an operation changes an argument, or returns a view of one."""
    schema = operation._schema
    return any(value.alias_info for value in (*schema.arguments, *schema.returns))


@law("device")
def device(composition: Composition) -> None:
    """Forward, backward and cached generation run with parameters and inputs on the meta device,
    also of padded batches.
    """
    model, ids, source = _meta_inputs(composition)
    _run_on_meta(composition, "plain", lambda: _train_step(model, Tokens(ids=ids), source))
    if "padding" not in composition.broken_laws:
        padded = Tokens(ids=ids, real=torch.empty_like(ids, dtype=torch.bool))
        _run_on_meta(composition, "padded", lambda: _train_step(model, padded, source))
    if not composition.sees_future and "cache" not in composition.broken_laws:
        _run_on_meta(composition, "cached", lambda: _generate(model.eval(), ids, source))
        model.train()


@law("device with documents", prerequisites=("device", "documents"))
def device_with_documents(composition: Composition) -> None:
    """The same for a batch of several documents in a row."""
    model, ids, source = _meta_inputs(composition)
    packed = Tokens(ids=ids, document=torch.empty_like(ids))
    if source is not None:
        source = source._replace(document=torch.empty_like(source.ids))
    _run_on_meta(composition, "packed", lambda: _train_step(model, packed, source))


def _meta_inputs(composition: Composition) -> tuple[Model, Tensor, Tokens | None]:
    """Returns a model in training mode, ids, and a source for two stacks, all on meta."""
    model = composition.compute_once(
        "model on meta", lambda: composition.trainable_model().float().to("meta").train()
    )
    source = None if composition.source is None else Tokens(ids=composition.source.to("meta"))
    return model, composition.ids.to("meta"), source


def _run_on_meta(composition: Composition, name: str, run: Callable[[], None]) -> None:
    """Runs a function. Raises LawBroken if it leaves the meta device or reads a value."""
    try:
        with _OnlyMeta():
            run()
    except (RuntimeError, NotImplementedError) as error:
        raise composition.broken(f"{name}: {' '.join(str(error).split())[:200]}") from None


def _train_step(model: Model, tokens: Tokens, source: Tokens | None) -> None:
    hidden, report = model.hidden(tokens, source=source, further=True)
    loss = model.head(hidden).float().sum()
    (loss + report["loss"] if "loss" in report else loss).backward()


@torch.no_grad()
def _generate(model: Model, ids: Tensor, source: Tokens | None) -> None:
    cache = model.cache(len(ids), LENGTH, 0 if source is None else SOURCE)
    encoded = None if source is None else model.encode(source)[0]
    for chunk in CHUNKS:
        model.head(model.hidden(Tokens(ids=ids[:, chunk]), cache, encoded)[0])
