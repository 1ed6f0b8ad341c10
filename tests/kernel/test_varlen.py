"""Packed texts, each by itself. Torch's function runs only on CUDA: here a loop over texts, as its
documentation words it, stands in its place, so that what it is called with is tried on a CPU too.
"""

import inspect
import math

import pytest
import torch
from contexts import BOTH, WINDOW, context, inputs, tokens
from refusals import refused
from torch.torch_version import TorchVersion

from xformer_kit import build
from xformer_kit.kernel import KERNELS, varlen
from xformer_kit.laws import tiny_config
from xformer_kit.mask import Causal, Full
from xformer_kit.registry import ConfigError
from xformer_kit.tensors.tokens import Tokens

PLAIN = KERNELS["reference"]()
SIGHTS = {
    "packed": {"document": [4, 7, 99]},
    "padded at the end": {"real": [13, 9, 1]},
    "padded in front": {"real": [-13, -9, -1]},
    "both": {"document": [4, 7, 99], "real": [13, 9, -5]},
}


def loop(
    query, key, value, starts_q, starts_k, longest_q, longest_k, *, scale, window_size, enable_gqa
):
    """Softmax over each text by itself; the window is counted from the ends of both."""
    out = torch.zeros(query.shape[0], query.shape[1], value.shape[2], dtype=query.dtype)
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    for text in range(len(starts_q) - 1):
        one, other = (slice(int(at[text]), int(at[text + 1])) for at in (starts_q, starts_k))
        q, k, v = (
            query[one].transpose(0, 1),
            key[other].transpose(0, 1),
            value[other].transpose(0, 1),
        )
        assert q.shape[1] <= longest_q and k.shape[1] <= longest_k
        if not q.shape[1]:
            continue
        i = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
        apart = i - torch.arange(k.shape[1])[None]
        left, right = (math.inf if side == -1 else side for side in window_size)
        scores = (q @ k.transpose(1, 2) * scale).masked_fill(
            (apart > left) | (-apart > right), -math.inf
        )
        out[one] = (scores.softmax(-1) @ v).transpose(0, 1)
    return out


function_of_torch = varlen.varlen_attention


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(varlen, "half_dtype", lambda device, dtype: torch.float64)
    monkeypatch.setattr(varlen, "varlen_attention", lambda: loop)


def test_the_loop_has_the_signature_of_torchs_function():
    there = inspect.signature(
        pytest.importorskip("torch.nn.attention.varlen").varlen_attn
    ).parameters
    assert list(there)[:7] == ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]
    assert {"scale", "window_size", "enable_gqa"} <= set(there)


@pytest.mark.parametrize("mask", [Full(), Causal(), WINDOW, BOTH], ids=repr)
@pytest.mark.parametrize("sight", SIGHTS)
def test_outputs_and_gradients_are_those_of_reference(mask, sight):
    key = tokens(13, **SIGHTS[sight])
    for newest in (None, 4):  # a whole text, and its last tokens after a cache
        if newest and mask in (Full(), BOTH):
            continue
        q, k, v = inputs(3, newest or 13, 13)
        found = []
        for kernel in (KERNELS["varlen"](), PLAIN):
            look = context(kernel, mask, key, newest)
            out = kernel(q, k, v, look, 0.4)
            real = torch.ones(1) if look.query.real is None else look.query.real[:, None, :, None]
            found += [(out * real, *torch.autograd.grad((out * real).sin().sum(), (q, k, v)))]
        torch.testing.assert_close(*found)


def test_a_version_of_torch_without_it_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.11.0"))
    with pytest.raises(ConfigError, match=r"^kernel: 'varlen' needs torch 2\.12 or later; this is"):
        function_of_torch()


def test_a_document_number_that_recurs_is_one_text():
    key = tokens(6)._replace(document=torch.tensor([[0, 1, 1, 0, 2, 1]])).with_positions()
    q, k, v = inputs(1, 6, 6)
    made = [
        kernel(q, k, v, context(kernel, Causal(), key), 0.3)
        for kernel in (KERNELS["varlen"](), PLAIN)
    ]
    torch.testing.assert_close(*made)


def test_without_documents_and_padding_it_runs_as_sdpa():
    kernel = KERNELS["varlen"]()
    assert not isinstance(context(kernel, Causal(), tokens(13)).prepared, varlen.VarlenCall)


def test_a_source_is_seen_text_by_text():
    config = tiny_config(
        "encoder_decoder",
        kernel="varlen",
        mask="causal",
        position="rotary",
        encoder={"mask": {"name": "full"}},
    )
    ids, source = torch.arange(14).view(2, 7), torch.arange(10).view(2, 5)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = []
    for kernel in ("varlen", "reference"):
        model = build({**config, "kernel": {"name": kernel}}, vocab_size=20).double().eval()
        found.append(model.hidden(Tokens(ids=ids), None, Tokens(ids=source, real=real))[0])
    torch.testing.assert_close(*found)


REFUSED = {
    "position=alibi": "position 'alibi' adds a bias to scores, and varlen adds none",
    "mask=strided": "mask 'strided' is no band of distances, and varlen computes only those",
    "attn.dropout=0.1": "attn.dropout is 0.1, and varlen drops no weights",
    "attn.head_dim=264": "a head has 264 channels, and varlen computes 256 at most",
    "attn.score.name=entmax": "attn.score is entmax, and varlen computes only softmax",
}


@pytest.mark.parametrize(("word", "reason"), REFUSED.items(), ids=list(REFUSED))
def test_unsupported_compositions_are_reported(word, reason):
    assert refused(["kernel=varlen", word]) == [
        f"kernel: 'varlen' cannot: {reason}. Use kernel=auto or kernel=reference."
    ]
