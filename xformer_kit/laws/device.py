"""Laws about devices: a step makes no tensor on another device, and reads no value from its own.

Both make a GPU wait for all operations in its queue, and are not possible under CUDA graphs. On the
meta device, where tensors have no values, both fail, without a GPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from xformer_kit.laws.registry import law
from xformer_kit.laws.tiny_composition import LENGTH, SOURCE, Composition
from xformer_kit.model.model import Model
from xformer_kit.tensors.meta_results import MetaResults
from xformer_kit.tensors.tokens import Tokens

CHUNKS = (slice(0, 5), slice(5, 6), slice(6, 10))  # a prompt, one token, several


class _OnlyMeta(MetaResults):
    """Raises RuntimeError for an operation that returns a tensor on another device than meta."""

    def check(self, operation: Any, tensors: list[Any]) -> None:
        for tensor in tensors:
            if isinstance(tensor, Tensor) and not tensor.is_meta:
                raise RuntimeError(
                    f"{operation} makes a tensor of {tuple(tensor.shape)} on {tensor.device}"
                )


@law("device")
def device(composition: Composition) -> None:
    """Forward, backward and cached generation run with parameters and inputs on the meta device,
    also of padded batches.

    Fails: plain: aten.arange.default makes a tensor of (13,) on cpu.
    Fix: Create tensors on the device of an input (device=x.device) or register them as buffers, and
        read no value into Python (item(), tolist(), if tensor).
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
    """The same for a batch of several documents in a row.

    Fails: packed: aten.arange.default makes a tensor of (2,) on cpu.
    Fix: As for `device`: compute with `tokens.document` by comparison of tensors, not by a loop
        over its values.
    """
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
    hidden, report = model.hidden(tokens, source=source, multi_token=True)
    loss = model.head(hidden).float().sum()
    (loss + report["loss"] if "loss" in report else loss).backward()


@torch.no_grad()
def _generate(model: Model, ids: Tensor, source: Tokens | None) -> None:
    cache = model.cache(len(ids), LENGTH, 0 if source is None else SOURCE)
    encoded = None if source is None else model.encode(source)[0]
    for chunk in CHUNKS:
        model.head(model.hidden(Tokens(ids=ids[:, chunk]), cache, encoded)[0])
