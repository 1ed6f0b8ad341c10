"""How the cross-entropy of a training step is computed, and the memory of its logits.

The rule is `chunk_tokens` of xformer_kit/model/loss.py.
"""

from collections.abc import Iterator
from typing import NamedTuple

from xformer_kit.inspect import memory
from xformer_kit.model.loss import Device, chunk_tokens
from xformer_kit.model.model import Model
from xformer_kit.objective import objective_of
from xformer_kit.registry import Node


class LossRun(NamedTuple):
    """How the loss of a micro-batch is computed on a device, and its memory in bytes."""

    where: str  # "head", or further predictions of extras
    way: str  # "all logits at once" or "in chunks"
    device: str  # cuda or cpu
    tokens: int  # whose logits are computed
    chunk: int | None  # tokens whose logits exist at once; None: all
    logits: int  # bytes of the logits that exist at once; all at once, with their gradient
    all_logits: int  # bytes of the logits of all tokens and of their gradient


def loss_runs(config: Node, model: Model, device: Device | None = None) -> Iterator[LossRun]:
    """Yields the loss of the head, and that of further predictions if there are any; none if the
    task computes no logits of the vocabulary. device: None for that of a run on this machine.
    """
    if not objective_of(config).given_logits:
        return
    device = device or memory.run_device(config)
    rows, length = memory.micro_batch(config)[0], config["data"]["seq_len"]
    labelled = memory.labelled_tokens(config, rows)
    tokens = rows * length if labelled is None else labelled
    losses = {"head": tokens}
    if model.predictions:
        losses["further predictions"] = tokens * len(model.predictions)
    vocab = model.head.vocab_size
    itemsize = max(4, memory.weights_dtype(config).itemsize)  # of logits, at least fp32
    for where, count in losses.items():
        chunk, everything = chunk_tokens(count, vocab, device), 2 * itemsize * count * vocab
        way, logits = "all logits at once", everything
        if chunk is not None:
            way, chunk = "in chunks", min(chunk, count)
            logits = itemsize * chunk * vocab
        yield LossRun(where, way, device.type, count, chunk, logits, everything)
