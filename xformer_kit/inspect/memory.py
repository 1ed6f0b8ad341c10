"""Memory of training and of generation.

A training step is run on fake tensors: every operation is dispatched as on a CPU, with its saved
tensors and its temporaries, and none of them is allocated. What is held at each moment is counted
as storages come and go: what torch's allocator holds, to the byte of what its profiler measures.
What an operation takes for itself past that allocator is not seen, nor what a process holds next to
its tensors: libraries, and on CPU the gaps in the heap of the C library, which measured a tenth to
two fifths more.
"""

import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from xformer_kit.data.buckets import step_rows
from xformer_kit.model.build import build_model
from xformer_kit.model.loss import first_chunks
from xformer_kit.objective import objective_of
from xformer_kit.optim import OPTIMIZERS
from xformer_kit.registry import Node

DTYPES = {"64": torch.float64, "bf16": torch.bfloat16, "16": torch.float16}


class TrainingMemory(NamedTuple):
    """Bytes. Activations: what the forward pass of one micro-batch leaves for its backward pass
    (distinct storages that autograd saved, each once; neither parameters and buffers nor the batch
    itself), so that they grow with layers, tokens and width. Temporaries: all else that tensors
    hold at the moment of the peak, which may lie in the loss or in the optimizer's step, where
    activations are gone.

    The first four are the whole of each. The peak is less than their sum, for activations are gone
    before all gradients have
    come: it is weights + optimizer + gradients_at_peak + activations_at_peak + temporaries_at_peak.
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
    """Bytes of the cache of one sequence; with a source as long as the sequence, whose keys and
    values it holds too.
    """

    per_token: float
    whole: int
    length: int  # tokens of `whole`


LONG = 2**20  # tokens
CHOOSING = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten._index_put_impl_.default,
)


class StorageTracker(TorchDispatchMode):
    """Storages that are allocated while it is active, until they are freed.

    labelled_tokens: number of indices that a boolean mask selects, which depends on values that
    fake tensors do not have.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}  # alive: key -> bytes
        self.keys: dict[int, int] = {}  # address of a storage that is alive -> its key
        self.held = 0
        self.peak = 0
        self.made = 0
        self.at_peak: frozenset[int] = frozenset()
        self.watching = False
        self.labelled_tokens: int | None = None
        self._grown = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in CHOOSING and self.labelled_tokens is not None:
            args = (args[0], self._numbered(args[1]), *args[2:])
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.enter(leaf)
        return result

    def _numbered(self, chosen: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Places chosen by a mask as places chosen by number: how many there are does not depend on
        a value then.
        """
        found: list[Tensor | None] = []
        for places in chosen:
            masked = places is not None and places.dtype == torch.bool
            found += (
                [places.new_empty(self.labelled_tokens, dtype=torch.int64)] * places.ndim
                if masked
                else [places]
            )  # type: ignore
        return found

    def enter(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self.keys:
            return
        self.made += 1
        key, self.keys[storage._cdata] = self.made, self.made
        self.sizes[key] = storage.nbytes()
        self.held += storage.nbytes()
        weakref.finalize(storage, self._leave, storage._cdata, key)
        if self.watching and self.held > self.peak:
            self.peak, self.at_peak = self.held, frozenset(self.sizes)

    def _leave(self, address: int, key: int) -> None:
        self.held -= self.sizes.pop(key)
        del self.keys[address]

    def key(self, tensor: Tensor) -> int:
        return self.keys[tensor.untyped_storage()._cdata]


def training_memory(config: Node, vocab_size: int) -> TrainingMemory:
    """Memory of a training step on one device, in trainer.precision, at data.seq_len and the
    micro-batch that data.batch_size, trainer.accumulate and trainer.devices make.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes a second to import

    rows, micro_batches = micro_batch(config)
    labelled_tokens = _labelled_tokens(config, rows)
    with FakeTensorMode(allow_non_fake_inputs=True), StorageTracker() as ledger, first_chunks():
        model = _fake(config, vocab_size, weights_dtype(config))
        objective = objective_of(config)
        parameters = [p for p in model.parameters() if p.requires_grad]
        weights = ledger.held
        optimizer = OPTIMIZERS.create(config["optim"], model=model)
        _step(optimizer, parameters)
        state = ledger.held - weights
        ledger.watching, ledger.labelled_tokens = True, labelled_tokens
        kept: dict[int, int] = {}
        for _ in range(min(micro_batches, 2)):  # the second one adds to gradients
            last = _backward(
                model, objective, objective.blank(rows, config["data"]["seq_len"]), config, ledger
            )
            kept |= last
        grads = [p.grad for p in parameters if p.grad is not None]
        gradients = {ledger.key(grad): grad.untyped_storage().nbytes() for grad in grads}
        torch._foreach_mul_(grads, torch.nn.utils.get_total_norm(grads))
        optimizer.step()
        there, left = (
            sum(n for key, n in some.items() if key in ledger.at_peak) for some in (gradients, kept)
        )
        peak = ledger.peak
    rest = peak - weights - state - there - left
    return TrainingMemory(
        weights, sum(gradients.values()), state, sum(last.values()), there, left, rest, peak, rows
    )


def _labelled_tokens(config: Node, rows: int) -> int | None:
    """Tokens of a batch that have a label; of a long text by the share of its beginning, whose
    batch is small. None where all are predicted.
    """
    length = config["data"]["seq_len"]
    component = min(length, LONG)
    labels = objective_of(config).blank(1, component).get("labels")
    return None if labels is None else int((labels >= 0).sum()) * rows * length // component


def micro_batch(config: Node) -> tuple[int, int]:
    """(sequences of a micro-batch on one device, micro-batches); accumulate=auto and devices=auto
    count as 1.
    """
    trainer = config.get("trainer") or {}
    numbers = [trainer.get(key) for key in ("accumulate", "devices", "num_nodes")]
    accumulate, devices, nodes = (n if isinstance(n, int) and n > 0 else 1 for n in numbers)
    if isinstance(trainer.get("devices"), list):
        devices = len(trainer["devices"])
    return max(1, step_rows(config["data"]) // (accumulate * devices * nodes)), accumulate


def cache_memory(model: nn.Module, length: int) -> CacheMemory:
    """The cache of one sequence of `length` tokens, with a source of as many, in the dtype of the
    weights; the model may be on meta.
    """
    two = getattr(model, "two_stacks", False)
    cache: Any = model.cache
    once, twice = (cache(1, n, n * two).bytes for n in (length, 2 * length))
    return CacheMemory((twice - once) / length, once, length)


def precision(config: Node) -> str:
    """trainer.precision, with `auto` answered for this machine."""
    wanted = (config.get("trainer") or {}).get("precision") or "auto"
    if wanted != "auto":
        return str(wanted)
    return "bf16-mixed" if torch.cuda.is_available() else "32-true"


def weights_dtype(config: Node) -> torch.dtype:
    """What the weights are held in: fp32 where precision is mixed."""
    kind, _, how = precision(config).partition("-")
    return DTYPES.get(kind, torch.float32) if how == "true" else torch.float32


def _backward(
    model: nn.Module,
    objective: Any,
    batch: Node,
    config: Node,
    ledger: StorageTracker,
) -> dict[int, int]:
    """A micro-batch, forwards and backwards. Returns what its forward pass left: key of a storage
    -> bytes.
    """
    before = set(ledger.sizes)
    kind, _, how = precision(config).partition("-")
    mixed = torch.autocast("cpu", dtype=DTYPES[kind]) if how == "mixed" else nullcontext()
    with mixed:
        nats, count, report = objective.loss(model, batch)
        loss = nats + report["loss"] * count if "loss" in report else nats
    left = {key: size for key, size in ledger.sizes.items() if key not in before}
    loss.backward()
    return left


def _step(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> None:
    """One step on empty gradients, so that the optimizer makes its state."""
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def _fake(config: Node, vocab_size: int, dtype: torch.dtype) -> nn.Module:
    """The model on fake CPU tensors, made from one on the meta device, which draws no initial
    weights.
    """
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    made: dict[int, Any] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:  # a tied parameter stays one
                    kind = dtype if tensor.is_floating_point() else tensor.dtype
                    new = torch.empty(tensor.shape, dtype=kind, device="cpu")
                    is_parameter = isinstance(tensor, nn.Parameter)
                    made[id(tensor)] = (
                        nn.Parameter(new, tensor.requires_grad) if is_parameter else new,
                        tensor,
                    )
                held[name] = made[id(tensor)][0]
    return model
