"""Memory of a training step and of the cache in generation.

A training step runs on fake tensors: each operation is dispatched as on a CPU, with its saved
tensors and temporaries, and nothing is allocated. Storages are counted from their creation until
they are freed. The peak is that of torch's allocator, as torch's profiler measures it, to the byte.
Not counted: memory that an operation allocates without torch's allocator, and other memory of the
process: libraries (0.5 GiB in a run on a CPU) and, on a CPU, the gaps in the heap of the C library.
With them the resident memory of a process grew by 1.22 to 1.42 times the peak in three steps of
seven compositions; by 1.01 to 1.04 times if glibc maps each tensor by itself
(MALLOC_MMAP_THRESHOLD_=65536), which makes a step of the default run 1.5 times as long.
"""

import math
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from xformer_kit.data.buckets import step_rows
from xformer_kit.model.build import build_model
from xformer_kit.model.loss import Device, first_chunks, loss_device
from xformer_kit.objective import objective_of
from xformer_kit.optim import create_optimizer
from xformer_kit.registry import Node

DTYPES = {
    "64": torch.float64,
    "bf16": torch.bfloat16,
    "16": torch.float16,
    "fp8": torch.bfloat16,  # of what is kept; factors and 8-bit copies of a layer are small
}
LABEL_SAMPLE = 2**20  # tokens of a text in which labels are counted, at most
INDEXING = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten._index_put_impl_.default,
)


class TrainingMemory(NamedTuple):
    """Bytes of a training step.

    activations: what the forward pass of one micro-batch keeps for its backward pass, that is
    distinct storages saved by autograd, without parameters, buffers and the batch. temporaries: all
    other tensors at the moment of the peak, which may be in the loss or in the optimizer's step,
    when no activations are left.

    peak = weights + optimizer + gradients_at_peak + activations_at_peak + temporaries_at_peak. It
    is less than the sum of the first four, since activations are freed before all gradients exist.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    gradients_at_peak: int
    activations_at_peak: int
    temporaries_at_peak: int
    peak: int
    rows: int  # sequences of a micro-batch


class CacheMemory(NamedTuple):
    """Bytes of the cache of one sequence. With two stacks it includes the keys and values of a
    source of the same length.
    """

    per_token: float
    whole: int
    length: int  # tokens of `whole`


class StorageTracker(TorchDispatchMode):
    """Tracks the storages that are allocated while it is active, until they are freed.

    A storage's key is its number in the order of allocation. The peak is tracked while
    `track_peak`. labelled_tokens: number of indices that a boolean mask selects; the number depends
    on values, which fake tensors do not have.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}  # key -> bytes, of storages that are not freed
        self.keys: dict[int, int] = {}  # address of a storage that is not freed -> key
        self.allocations = 0
        self.held = 0  # bytes
        self.peak = 0  # bytes
        self.at_peak: frozenset[int] = frozenset()  # keys
        self.track_peak = False
        self.labelled_tokens: int | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in INDEXING and self.labelled_tokens is not None:
            args = (args[0], self._without_masks(args[1]), *args[2:])
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.add(leaf)
        return result

    def _without_masks(self, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Replaces each boolean mask by integer indices, whose number does not depend on values."""
        numbers: list[Tensor | None] = []
        for index in indices:
            if index is None or index.dtype != torch.bool:
                numbers.append(index)
            else:
                selected = index.new_empty(self.labelled_tokens, dtype=torch.int64)  # type: ignore
                numbers += [selected] * index.ndim
        return numbers

    def add(self, tensor: Tensor) -> None:
        """Adds the tensor's storage, if it is new."""
        storage = tensor.untyped_storage()
        if storage._cdata in self.keys:
            return
        self.allocations += 1
        key = self.keys[storage._cdata] = self.allocations
        self.sizes[key] = storage.nbytes()
        self.held += storage.nbytes()
        weakref.finalize(storage, self._remove, storage._cdata, key)
        if self.track_peak and self.held > self.peak:
            self.peak, self.at_peak = self.held, frozenset(self.sizes)

    def _remove(self, address: int, key: int) -> None:
        self.held -= self.sizes.pop(key)
        del self.keys[address]


def training_memory(config: Node, vocab_size: int) -> TrainingMemory:
    """Memory of a training step on one device, in trainer.precision, at data.seq_len, with the
    micro-batch that follows from data.batch_size, trainer.accumulate and trainer.devices.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes a second to import

    rows, micro_batches = micro_batch(config)
    labels = labelled_tokens(config, rows)
    fake, chunks = FakeTensorMode(allow_non_fake_inputs=True), first_chunks(run_device(config))
    with fake, StorageTracker() as tracker, chunks:
        model = _fake_model(config, vocab_size)
        objective = objective_of(config)
        parameters = [p for p in model.parameters() if p.requires_grad]
        weights = tracker.held
        optimizer = create_optimizer(config["optim"], model)
        for parameter in parameters:  # a first step, which creates the optimizer's state
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        state = tracker.held - weights
        tracker.track_peak, tracker.labelled_tokens = True, labels
        all_activations: dict[int, int] = {}
        for _ in range(min(micro_batches, 2)):  # the second one adds to gradients
            batch = objective.blank(rows, config["data"]["seq_len"])
            activations = _backward(model, objective, batch, precision(config), tracker)
            all_activations |= activations
        grads = [p.grad for p in parameters if p.grad is not None]
        gradients = {
            tracker.keys[storage._cdata]: storage.nbytes()
            for storage in (grad.untyped_storage() for grad in grads)
        }
        torch._foreach_mul_(grads, torch.nn.utils.get_total_norm(grads))  # gradient clipping
        optimizer.step()
        gradients_at_peak, activations_at_peak = (
            sum(size for key, size in sizes.items() if key in tracker.at_peak)
            for sizes in (gradients, all_activations)
        )
        peak = tracker.peak
    return TrainingMemory(
        weights,
        sum(gradients.values()),
        state,
        sum(activations.values()),
        gradients_at_peak,
        activations_at_peak,
        peak - weights - state - gradients_at_peak - activations_at_peak,
        peak,
        rows,
    )


def labelled_tokens(config: Node, rows: int) -> int | None:
    """Number of tokens of a batch that have a label; None if the task labels all tokens. In a long
    text it is estimated from the beginning.
    """
    length = config["data"]["seq_len"]
    sample = min(length, LABEL_SAMPLE)
    labels = objective_of(config).blank(1, sample).get("labels")
    return None if labels is None else int((labels >= 0).sum()) * rows * length // sample


def micro_batch(config: Node) -> tuple[int, int]:
    """(sequences of a micro-batch on one device, micro-batches per step); accumulate=auto and
    devices=auto count as 1.
    """
    trainer = config.get("trainer") or {}
    devices = trainer.get("devices")
    factors = [
        factor if isinstance(factor, int) and factor > 0 else 1
        for factor in (
            trainer.get("accumulate"),
            len(devices) if isinstance(devices, list) else devices,
            trainer.get("num_nodes"),
        )
    ]
    return max(1, step_rows(config["data"]) // math.prod(factors)), factors[0]


def cache_memory(model: Any, length: int) -> CacheMemory:
    """Memory of the cache of one sequence of `length` tokens, with two stacks with a source of the
    same length, in the dtype of the weights; the model may be on the meta device.
    """
    whole, doubled = (
        model.cache(1, tokens, tokens * model.two_stacks).bytes for tokens in (length, 2 * length)
    )
    return CacheMemory((doubled - whole) / length, whole, length)


def precision(config: Node) -> str:
    """trainer.precision; `auto` becomes the one that this machine uses."""
    chosen = (config.get("trainer") or {}).get("precision") or "auto"
    if chosen != "auto":
        return str(chosen)
    return "bf16-mixed" if torch.cuda.is_available() else "32-true"


def run_device(config: Node) -> Device:
    """The device of a run on this machine, CUDA or the CPU."""
    accelerator = (config.get("trainer") or {}).get("accelerator", "auto")
    on_cuda = accelerator != "cpu" and torch.cuda.is_available()
    return loss_device(torch.device("cuda" if on_cuda else "cpu"))


def weights_dtype(config: Node) -> torch.dtype:
    """The dtype of the weights; fp32 if the precision is mixed."""
    bits, _, mode = precision(config).partition("-")
    return DTYPES.get(bits, torch.float32) if mode == "true" else torch.float32


def autocast(precision: str, device: str) -> AbstractContextManager[Any]:
    """The context of a precision such as bf16-mixed on a type of device."""
    bits, _, mode = precision.partition("-")
    return torch.autocast(device, dtype=DTYPES[bits]) if mode == "mixed" else nullcontext()


def _backward(
    model: nn.Module, objective: Any, batch: Node, precision: str, tracker: StorageTracker
) -> dict[int, int]:
    """Runs the forward and the backward pass of a micro-batch. Returns {key of a storage: bytes} of
    its activations.
    """
    before = set(tracker.sizes)
    with autocast(precision, "cpu"):
        nats, count, report = objective.loss(model, batch)
        loss = nats + report["loss"] * count if "loss" in report else nats
    activations = {key: size for key, size in tracker.sizes.items() if key not in before}
    loss.backward()
    return activations


def _fake_model(config: Node, vocab_size: int) -> nn.Module:
    """The model on fake CPU tensors, converted from the meta device, on which no initial weights
    are drawn.
    """
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    fakes: dict[int, Tensor] = {}
    originals = [*model.parameters(), *model.buffers()]  # held, so that ids stay unique
    for tensor in originals:
        dtype = weights_dtype(config) if tensor.is_floating_point() else tensor.dtype
        fake = torch.empty(tensor.shape, dtype=dtype, device="cpu")
        is_parameter = isinstance(tensor, nn.Parameter)
        fakes[id(tensor)] = nn.Parameter(fake, tensor.requires_grad) if is_parameter else fake
    for module in model.modules():
        tensors: Any
        for tensors in (module._parameters, module._buffers):
            tensors |= {
                name: fakes[id(tensor)] for name, tensor in tensors.items() if tensor is not None
            }  # a tied parameter stays one
    return model
