"""Cross-entropy at once and in chunks against torch's own: values, gradients, precision."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from xformer_kit.model import loss as module
from xformer_kit.model.loss import cross_entropy

TERMS = [{}, {"label_smoothing": 0.1}, {"z_loss": 0.03}, {"label_smoothing": 0.7, "z_loss": 1e-4}]
TERMS += [{"softcap": 2.0}, {"softcap": 1.5, "label_smoothing": 0.2, "z_loss": 0.03}]


@pytest.fixture(params=["chunks", "at once"])
def path(request, monkeypatch):
    """Both ways of computing it, on small shapes: chunks of a few tokens, or everything at once."""
    monkeypatch.setattr(module, "MAX_UNCHUNKED", 0 if request.param == "chunks" else 2**40)
    monkeypatch.setattr(module, "CHUNK", 70)
    return request.param


def example(tokens=13, dim=5, rows=23, vocab=23, bias=True, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, dim, generator=g, dtype=dtype).requires_grad_()
    weight = torch.randn(rows, dim, generator=g, dtype=dtype).requires_grad_()
    shift = torch.randn(rows, generator=g, dtype=dtype).requires_grad_() if bias else None
    target = torch.randint(vocab, (tokens,), generator=g)
    target[2::5] = -1  # not to be predicted
    return hidden, weight, target, shift


def plain(
    hidden,
    weight,
    target,
    bias=None,
    vocab_size=None,
    label_smoothing=0.0,
    z_loss=0.0,
    softcap=None,
):
    """The definition: all logits, then torch's loss over the targets that count, and the squares of
    log Z.
    """
    keep = target >= 0
    logits = F.linear(hidden, weight, bias)[keep, :vocab_size]
    logits = logits if softcap is None else softcap * (logits / softcap).tanh()
    loss = F.cross_entropy(logits, target[keep], reduction="sum", label_smoothing=label_smoothing)
    return loss + z_loss * logits.exp().sum(-1).log().square().sum() if z_loss else loss


def gradients(loss, *leaves):
    return torch.autograd.grad(
        loss, [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    )


def assert_same(inputs, **options):
    hidden, weight, _, bias = inputs
    ours, theirs = cross_entropy(*inputs, **options), plain(*inputs, **options)
    assert_close(ours, theirs)
    for a, b in zip(
        gradients(ours, hidden, weight, bias), gradients(theirs, hidden, weight, bias), strict=True
    ):
        assert_close(a, b)


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 31),
    dim=st.integers(1, 7),
    vocab=st.integers(2, 41),
    padding=st.integers(0, 5),
    chunk=st.integers(1, 900),
    bias=st.booleans(),
    seed=st.integers(0, 99),
    terms=st.sampled_from(TERMS),
)
def test_chunks_equal_the_definition_for_any_shape_and_chunk(
    tokens, dim, vocab, padding, chunk, bias, seed, terms
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_UNCHUNKED", 0)
        patch.setattr(module, "CHUNK", chunk)
        assert_same(
            example(tokens, dim, vocab + padding, vocab, bias, seed=seed), vocab_size=vocab, **terms
        )


@pytest.mark.parametrize(
    "tokens", [2, 3, 4, 6, 7]
)  # chunks of 3 tokens: short, exact, one over, two, two and a rest
def test_chunk_boundaries(tokens, monkeypatch):
    monkeypatch.setattr(module, "MAX_UNCHUNKED", 0)
    monkeypatch.setattr(module, "CHUNK", 3 * 23)
    assert_same(example(tokens))


@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_equal_on_both_paths(path, terms):
    assert_same(example(), **terms)
    assert_same(example(bias=False), **terms)
    assert_same(example(rows=29, vocab=23), vocab_size=23, **terms)


def test_leading_dimensions_do_not_matter(path):
    hidden, weight, target, bias = example(tokens=12)
    folded = cross_entropy(hidden.view(3, 4, 5), weight, target.view(3, 4), bias)
    assert_close(folded, cross_entropy(hidden, weight, target, bias))


def test_by_eye(path):
    # Equal logits over 4 words: every one of the 2 targets that count costs log 4.
    loss = cross_entropy(torch.zeros(3, 2), torch.ones(4, 2), torch.tensor([1, -1, 3]))
    assert_close(loss, 2 * torch.tensor(4.0).log())


def test_smoothing_and_z_loss_by_eye(path):
    # One token, 4 words with logits 3, 0, 0, 0 and Z = e^3 + 3: a quarter of the smoothing goes to
    # each word.
    inputs = torch.ones(1, 1), torch.tensor([[3.0], [0], [0], [0]]), torch.tensor([0])
    log_z = (torch.tensor(3.0).exp() + 3).log()
    assert_close(cross_entropy(*inputs, label_smoothing=0.4), log_z - (0.6 * 3 + 0.4 * 3 / 4))
    assert_close(cross_entropy(*inputs, z_loss=0.5), log_z - 3 + 0.5 * log_z**2)


@pytest.mark.parametrize("terms", TERMS[1:], ids=str)
def test_every_negative_target_is_ignored(path, terms):
    hidden, weight, target, bias = example()
    other = torch.where(target < 0, -100, target)
    assert_close(
        cross_entropy(hidden, weight, other, bias), cross_entropy(hidden, weight, target, bias)
    )
    one, same = (cross_entropy(hidden, weight, t, bias, **terms) for t in (other, target))
    assert_close(one, same)


@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_without_a_target_the_loss_and_every_gradient_are_zero(path, terms):
    hidden, weight, target, bias = example()
    loss = cross_entropy(hidden, weight, torch.full_like(target, -1), bias, **terms)
    assert loss == 0
    assert all((g == 0).all() for g in gradients(loss, hidden, weight, bias))


def test_rows_that_pad_the_vocabulary_take_no_part(path):
    hidden, weight, target, bias = example(rows=29, vocab=23)
    cut = cross_entropy(hidden, weight[:23], target, bias[:23])
    loss = cross_entropy(hidden, weight, target, bias, vocab_size=23)
    assert_close(loss, cut)
    _, of_weight, of_bias = gradients(loss, hidden, weight, bias)
    assert (of_weight[23:] == 0).all()
    assert (of_bias[23:] == 0).all()


@pytest.mark.parametrize("upstream", [0.0, -2.5])
def test_the_upstream_gradient_scales(path, upstream):
    hidden, weight, target, bias = example()
    once = gradients(cross_entropy(hidden, weight, target, bias), hidden, weight, bias)
    scaled = gradients(upstream * cross_entropy(hidden, weight, target, bias), hidden, weight, bias)
    for a, b in zip(scaled, once, strict=True):
        assert_close(a, upstream * b)


def test_a_kept_graph_runs_backward_twice_to_the_same_gradient(path):
    hidden, weight, target, _ = example()
    loss = 3 * cross_entropy(hidden, weight, target)
    first = torch.autograd.grad(loss, (hidden, weight), retain_graph=True)
    for a, b in zip(first, torch.autograd.grad(loss, (hidden, weight)), strict=True):
        assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("frozen", [0, 1, 3])
def test_frozen_tensors_get_no_gradient_and_do_not_change_others(path, frozen):
    inputs = example()
    inputs[frozen].requires_grad_(False)
    assert_same(inputs)


@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_gradcheck(path, terms):
    hidden, weight, target, bias = example(tokens=7, dim=3, rows=11, vocab=11)
    assert torch.autograd.gradcheck(
        lambda h, w, b: cross_entropy(h, w, target, b, **terms), (hidden, weight, bias)
    )


def test_without_gradients_the_value_is_the_same_and_no_graph_is_kept(path):
    inputs = example()
    with torch.no_grad():
        loss = cross_entropy(*inputs)
    assert not loss.requires_grad
    assert_close(loss, plain(*inputs).detach())


def test_without_gradients_none_is_computed(monkeypatch):
    monkeypatch.setattr(module, "MAX_UNCHUNKED", 0)
    monkeypatch.setattr(
        module, "_accumulate", lambda *_: pytest.fail("a gradient that nobody asked for")
    )
    inputs = example()
    with torch.no_grad():
        cross_entropy(*inputs)
    cross_entropy(*(p if p is None else p.detach() for p in inputs))


def test_large_logits_stay_finite(path):
    hidden, weight, target, bias = example(dtype=torch.float32)
    with torch.no_grad():
        hidden *= 1e4
    loss = cross_entropy(hidden, weight, target, bias)
    assert_close(loss, plain(hidden, weight, target, bias))
    assert all(g.isfinite().all() for g in gradients(loss, hidden, weight, bias))


def test_a_second_derivative_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_UNCHUNKED", 0)
    hidden, weight, target, _ = example()
    (first,) = torch.autograd.grad(
        cross_entropy(hidden, weight, target) ** 2, hidden, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("terms", [TERMS[0], TERMS[-1]], ids=str)
def test_half_precision_sums_in_fp32(path, dtype, autocast, terms):
    exact = example(tokens=61, vocab=23)
    want = gradients(plain(*exact, **terms), *exact[:2], exact[3])
    stored = torch.float32 if autocast else dtype
    hidden, weight, bias = (exact[i].detach().to(stored).requires_grad_() for i in (0, 1, 3))
    with torch.autocast("cpu", dtype, enabled=autocast):
        loss = cross_entropy(hidden, weight, exact[2], bias, **terms)
    assert loss.dtype == torch.float32
    assert_close(loss.double(), plain(*exact, **terms), rtol=1e-2, atol=0)
    for g, right in zip(gradients(loss, hidden, weight, bias), want, strict=True):
        assert g.dtype == stored
        assert (g.double() - right).norm() < 2e-2 * right.norm()


@pytest.mark.parametrize("has_bias", [True, False])
def test_half_precision_logits_become_a_loss_in_fp32(path, has_bias):
    hidden, weight, target, bias = (p.detach() for p in example(tokens=61))
    half = [p.bfloat16() for p in (hidden, weight)] + [bias.bfloat16() if has_bias else None]
    logits = F.linear(half[0], half[1]).float()  # rounded once, by the product
    logits = logits + half[2].float() if has_bias else logits
    right = F.cross_entropy(logits, target, ignore_index=-1, reduction="sum")
    tight = (
        1e-6 if module.MAX_UNCHUNKED == 0 else 1e-3
    )  # F.linear rounds a second time, after the bias
    assert_close(cross_entropy(half[0], half[1], target, half[2]), right, rtol=tight, atol=0)


@pytest.mark.parametrize("terms", TERMS)
def test_scaled_streams_equal_their_sums_one_by_one(path, terms):
    hidden, weight, target, bias = example(tokens=3 * 13, rows=29)
    scale = torch.tensor([0.5, 2.0, 1.5], dtype=torch.float64)
    streams = hidden.view(3, 13, 5), weight, target.view(3, 13)
    total, sums = cross_entropy(*streams, bias, 23, scale, **terms)
    components = [
        plain(hidden[i : i + 13], weight, target[i : i + 13], bias, 23, **terms)
        for i in (0, 13, 26)
    ]
    expected = sum(s * component for s, component in zip(scale, components, strict=True))
    assert_close(total, expected)
    assert_close(sums, torch.stack(components).detach())
    assert not sums.requires_grad
    leaves = hidden, weight, bias
    for a, b in zip(gradients(3 * total, *leaves), gradients(3 * expected, *leaves), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_both_ways_are_equal(monkeypatch, terms, scaled):
    """Loss, losses of streams and each gradient, with rows that pad the vocabulary."""
    hidden, weight, target, bias = example(tokens=2 * 13, rows=29)
    streams = hidden.view(2, 13, 5), weight, target.view(2, 13), bias, 23
    scale, found = torch.tensor([0.5, 2.0], dtype=torch.float64) if scaled else None, []
    monkeypatch.setattr(module, "CHUNK", 70)
    for limit in (0, 2**40):
        monkeypatch.setattr(module, "MAX_UNCHUNKED", limit)
        losses = cross_entropy(*streams, scale, **terms)
        total, *sums = losses if scaled else (losses,)
        found.append([total, *sums, *gradients(3 * total, hidden, weight, bias)])
    for a, b in zip(*found, strict=True):
        assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.extended
@pytest.mark.parametrize("terms", [TERMS[0], TERMS[-1]], ids=str)
def test_compiles_into_one_graph(monkeypatch, terms):
    monkeypatch.setattr(module, "MAX_UNCHUNKED", 0)
    monkeypatch.setattr(module, "CHUNK", 5 * 23)
    torch._dynamo.reset()
    hidden, weight, target, bias = example(dtype=torch.float32)
    compiled = torch.compile(cross_entropy, backend="aot_eager", fullgraph=True)
    ours, theirs = (
        compiled(hidden, weight, target, bias, **terms),
        plain(hidden, weight, target, bias, **terms),
    )
    assert_close(ours, theirs)
    for a, b in zip(
        gradients(ours, hidden, weight, bias), gradients(theirs, hidden, weight, bias), strict=True
    ):
        assert_close(a, b)
