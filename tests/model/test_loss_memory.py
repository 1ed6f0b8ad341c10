"""How much of the logits of a cross-entropy exists at once, and the rule by which it is chosen."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from xformer_kit.inspect.memory import StorageTracker
from xformer_kit.model import loss as module
from xformer_kit.model.loss import cross_entropy

GIB = 2**30
GPT2 = 16 * 1024, 50_304  # tokens, vocabulary: 6.1 GiB of fp32 logits and their gradient
TERMS = {"softcap": 1.5, "label_smoothing": 0.2, "z_loss": 0.03}


@pytest.mark.parametrize(
    ("size", "device", "chunk"),
    [
        (GPT2, ("cuda", 80 * GIB), None),
        (GPT2, ("cuda", 40 * GIB), 2048),
        ((64 * 1024, 50_304), ("cuda", 80 * GIB), 2048),
        ((2**20, 1024), ("cuda", 64 * GIB), None),  # 8 GiB, an eighth
        ((2**20 + 1, 1024), ("cuda", 64 * GIB), 2**16),
        ((2**12, 1024), ("cuda", 0), None),  # few logits
        (GPT2, ("cpu",), 83),
        ((2**14, 256), ("cpu",), None),
        ((2**14 + 1, 256), ("cpu",), 2**14),
        ((2**9, 1024), ("cpu",), None),
        ((2**9 + 1, 1024), ("cpu",), 2**12),
        (GPT2, ("mps",), 2048),
    ],
)
def test_the_rule_by_eye(size, device, chunk):
    assert module.chunk_tokens(*size, module.Device(*device)) == chunk


def test_more_streams_need_no_more_logits_at_once(monkeypatch):
    """What lives at once, at its most, grows with the streams' hidden states, not with their logits
    or weights.
    """
    monkeypatch.setattr(module, "MAX_UNCHUNKED", 0)
    monkeypatch.setattr(module, "CHUNK", 64 * 4000)
    peaks = []
    for n in (1, 5):
        hidden, target = (
            torch.randn(n, 256, 8, requires_grad=True),
            torch.zeros(n, 256, dtype=torch.int64),
        )
        weight = torch.randn(4000, 8, requires_grad=True)
        with StorageTracker() as tracker:
            tracker.track_peak = True
            cross_entropy(hidden, weight, target, scale=torch.ones(n))[0].backward()
        peaks.append(tracker.peak)
    assert peaks[0] > 64 * 4000 * 4  # one chunk of logits
    assert (
        peaks[1] - peaks[0] < 4 * 256 * 4000 * 4 / 50
    )  # a fiftieth of the logits of four more streams


class Largest(TorchDispatchMode):
    """The most elements that any tensor made in here has."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.elements = max([self.elements, *sizes])
        return out


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("terms", [{}, TERMS], ids=str)
def test_no_tensor_is_ever_larger_than_a_chunk_or_the_weight(grad, terms):
    tokens, vocab, dim = 1031, 32_003, 3  # 33 million logits
    hidden, weight = (
        torch.randn(tokens, dim).requires_grad_(),
        torch.randn(vocab, dim).requires_grad_(),
    )
    with Largest() as made, torch.set_grad_enabled(grad):
        loss = cross_entropy(hidden, weight, torch.randint(vocab, (tokens,)), **terms)
        if grad:
            loss.backward()
    assert made.elements <= module.CHUNK
    with Largest() as all_at_once:  # the law bites where all logits are made
        F.linear(hidden, weight)
    assert all_at_once.elements == tokens * vocab > module.CHUNK


def test_chunks_of_a_gpu_are_larger():
    """A chunk has 64 million logits, and at least 2,048 tokens."""
    for vocab, tokens in ((50_000, 2048), (8192, 8192)):
        with FakeTensorMode(), Largest() as made, module.first_chunks(module.Device("cuda")):
            hidden = torch.empty(10_000, 3, requires_grad=True)
            weight = torch.empty(vocab, 3, requires_grad=True)
            cross_entropy(hidden, weight, torch.empty(10_000, dtype=torch.int64))
        assert made.elements == tokens * vocab


@pytest.mark.parametrize(("memory", "logits"), [(40 * GIB, 2048), (80 * GIB, 16 * 1024)])
def test_the_memory_of_a_gpu_decides(monkeypatch, memory, logits):
    monkeypatch.setattr(module, "loss_device", lambda device: module.Device("cuda", memory))
    with FakeTensorMode(), Largest() as made:
        hidden = torch.empty(16 * 1024, 3, requires_grad=True)
        weight = torch.empty(50_304, 3, requires_grad=True)
        cross_entropy(hidden, weight, torch.empty(16 * 1024, dtype=torch.int64))
    assert made.elements == logits * 50_304
