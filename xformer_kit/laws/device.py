"""Laws about devices: a step makes no tensor on another device, and reads no value from its own.

Both cost a GPU a wait for all that was queued, and end a run under CUDA graphs. On the meta device,
where tensors have no values, both fail, without a GPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from xformer_kit.laws.composition import LENGTH, SOURCE, Composition
from xformer_kit.laws.registry import law
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import Node

CHUNKS = (slice(0, 5), slice(5, 6), slice(6, 10))  # a prompt, one token, several


class _OnMeta(TorchDispatchMode):
    """Raises RuntimeError for an operation that returns a tensor on another device than meta."""

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Node | None = None,
    ) -> Any:
        out = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and not tensor.is_meta:
                raise RuntimeError(
                    f"{operation} makes a tensor of {tuple(tensor.shape)} on {tensor.device}"
                )
        return out


@law("device")
def device(case: Composition) -> None:
    """Forward, backward and cached generation run with parameters and inputs on the meta device,
    also of padded batches.
    """
    model, ids, source = _inputs(case)
    _holds(case, "plain", lambda: _step(model, Tokens(ids=ids), source))
    if "padding" not in case.breaks:
        real = torch.empty_like(ids, dtype=torch.bool)
        _holds(case, "padded", lambda: _step(model, Tokens(ids=ids, real=real), source))
    if not case.sees_future and "cache" not in case.breaks:
        _holds(case, "cached", lambda: _generate(model.eval(), ids, source))
        model.train()


@law("device with documents", under=("device", "documents"))
def device_with_documents(case: Composition) -> None:
    """The same for a batch of several documents in a row."""
    model, ids, source = _inputs(case)
    document = torch.empty_like(ids, dtype=torch.long)
    if source is not None:
        source = source._replace(document=torch.empty_like(source.ids, dtype=torch.long))
    _holds(case, "packed", lambda: _step(model, Tokens(ids=ids, document=document), source))


def _inputs(case: Composition) -> tuple[Model, Tensor, Tokens | None]:
    """A model in training mode, ids, and a source of two stacks, all on meta."""
    model = case.shared("model on meta", lambda: case.learning().float().to("meta").train())
    source = None if case.source is None else Tokens(ids=case.source.to("meta"))
    return model, case.ids.to("meta"), source


def _holds(case: Composition, what: str, run: Callable[[], None]) -> None:
    try:
        with _OnMeta():
            run()
    except (RuntimeError, NotImplementedError) as error:
        raise case.broken(f"{what}: {' '.join(str(error).split())[:200]}") from None


def _step(model: Model, tokens: Tokens, source: Tokens | None) -> None:
    hidden, report = model.hidden(tokens, source=source, further=True)
    loss = model.head(hidden).float().sum()
    (loss + report["loss"] if "loss" in report else loss).backward()


@torch.no_grad()
def _generate(model: Model, ids: Tensor, source: Tokens | None) -> None:
    past = model.cache(len(ids), LENGTH, 0 if source is None else SOURCE)
    encoded = None if source is None else model.encode(source)[0]
    for chunk in CHUNKS:
        model.head(model.hidden(Tokens(ids=ids[:, chunk]), past, encoded)[0])
