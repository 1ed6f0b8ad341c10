"""Recurrences step by step, and the same in chunks."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from xformer_kit.kernel.recurrence import Recurrence, chunks, segments, steps
from xformer_kit.mask import Causal
from xformer_kit.tensors.tokens import AttentionContext, Tokens

ROWS, HEADS, KEY, VALUE = 2, 3, 5, 4
ONE = torch.ones(1, 1, 3, 1, dtype=torch.float64)
VALUES = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64).view(1, 1, 3, 1)
NOTHING = torch.zeros(1, 1, 1, 1, dtype=torch.float64)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, [1, 3, 7]),
        ({"decay": torch.full((1, 1, 3), 0.5).log().double()}, [1, 2.5, 5.25]),
        ({"beta": torch.ones(1, 1, 3).double()}, [1, 2, 4]),  # what stands under a key is replaced
        ({"beta": torch.full((1, 1, 3), 0.5).double()}, [0.5, 1.25, 2.625]),  # half of it
        ({"segment": torch.tensor([[0, 1, 1]])}, [1, 2, 6]),
    ],
    ids=["sum", "decay", "delta", "half", "documents"],
)
def test_a_state_of_one_number_by_eye(parts, expected):
    r = Recurrence(ONE, ONE, VALUES, **parts)
    for out, state in (steps(r, NOTHING), chunks(r, NOTHING, 2)):
        assert_close(out.flatten(), torch.tensor(expected, dtype=torch.float64))
        assert state.item() == pytest.approx(expected[-1])


def drawn(kind, length, documents=True, dtype=torch.float64):
    torch.manual_seed(3)
    q, k, v = (torch.randn(ROWS, HEADS, length, n, dtype=dtype) for n in (KEY, KEY, VALUE))
    decay = -F.softplus(torch.randn(ROWS, HEADS, length, dtype=dtype)) if "decay" in kind else None
    beta = torch.rand(ROWS, HEADS, length, dtype=dtype) * 2 if "delta" in kind else None
    k = F.normalize(k, dim=-1) if beta is not None else k
    begins = torch.rand(ROWS, length) < 0.03
    r = Recurrence(q, k, v, decay, beta, begins.cumsum(-1) if documents else None)
    for x in r[:5]:
        if x is not None:
            x.requires_grad_()
    return r, torch.randn(ROWS, HEADS, KEY, VALUE, dtype=dtype).requires_grad_()


def told(way, kind, documents):
    """What is read, the last state, and all gradients."""
    r, state = drawn(kind, 70, documents)
    out, last = way(r, state)
    (out.sin().sum() + last.cos().sum()).backward()
    return [out, last, state.grad, *(x.grad for x in r[:5] if x is not None)]


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("kind", ["sum", "decay", "delta", "decay and delta"])
def test_chunks_of_any_size_equal_the_steps(kind, documents):
    expected = told(steps, kind, documents)
    for size in (1, 7, 64, 70):
        got = told(lambda r, state, size=size: chunks(r, state, size), kind, documents)
        for a, b in zip(got, expected, strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [7, 64])
def test_strong_decay_and_repeated_keys_stay_finite(size):
    r, state = drawn("decay and delta", 70, dtype=torch.float32)
    r = r._replace(
        decay=(r.decay * 1000).detach().requires_grad_(),
        k=F.normalize(torch.ones_like(r.k), dim=-1),
    )
    out, last = chunks(r, state, size)
    assert_close(out, steps(r, state)[0], rtol=1e-4, atol=1e-4)
    (out.sum() + last.sum()).backward()
    assert all(x.grad.isfinite().all() for x in (r.q, r.v, r.decay, r.beta, state))


@pytest.mark.parametrize("kind", ["sum", "decay and delta"])
def test_memory_for_backward_is_linear_in_the_length(kind):
    def kept(length):
        sizes = {}

        def keep(x):
            sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            r, state = drawn(kind, length)
            held = chunks(r, state, 16)  # alive, so that no storage takes the place of another
        assert held[0].shape[2] == length
        return sum(sizes.values())

    assert kept(512) / kept(256) == pytest.approx(2, rel=0.05)


def context(document, real=None, past=0):
    tokens = Tokens(slot=torch.arange(len(document))[None], document=torch.tensor([document]))
    tokens = tokens._replace(real=None if real is None else torch.tensor([real]).bool())
    tokens = tokens._replace(document=tokens.document_runs())
    return AttentionContext(tokens.map(lambda field: field[:, past:]), tokens, Causal(), None)


def test_documents_are_counted_from_the_last_token_of_the_past():
    assert segments(context([3, 3, 5, 5, 4])).tolist() == [[0, 0, 1, 1, 2]]
    assert segments(context([3, 3, 5, 5, 4], past=3)).tolist() == [[0, 1]]
    assert segments(context([3, 3, 5, 5, 4], past=4)).tolist() == [[1]]
    assert segments(context([3, 3, 5, 5, 3], past=3)).tolist() == [[0, 1]]


def test_padding_begins_no_document():
    assert segments(context([9, 3, 9, 3, 4, 9], [0, 1, 0, 1, 1, 0])).tolist() == [
        [0, 0, 0, 0, 1, 1]
    ]
    assert segments(context([9, 9, 3, 9, 4], [0, 0, 1, 0, 1], past=2)).tolist() == [[0, 0, 1]]
