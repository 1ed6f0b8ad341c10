"""kernel=fla: what the library's operations receive, and what is done with their results. No test
runs them, since they need a GPU; here the recurrence is computed token by token.
"""

import pytest
import torch

from xformer_kit import ConfigError, compose
from xformer_kit.kernel import Recurrence, fla
from xformer_kit.kernel.recurrence import steps

B, H, T, D, E = 2, 3, 7, 4, 6


def operation(q, k, v, scale, initial_state, output_final_state, g=None, beta=None):
    """The operations as the library documents them: q, k (b, t, h, d), v (b, t, h, e), g and beta
    (b, t, h), scores times `scale`, which is 1 / sqrt(d) by default.
    """
    assert q.dtype == k.dtype == v.dtype == torch.bfloat16
    assert initial_state.dtype == torch.float32
    assert output_final_state
    assert q.shape == k.shape == (B, T, H, D)
    assert v.shape == (B, T, H, E)
    assert all(x is None or x.shape == (B, T, H) for x in (g, beta))
    state, read = initial_state, []
    for i in range(T):
        state = state if g is None else state * g[:, i].exp()[..., None, None]
        key, value = k[:, i, :, :, None].float(), v[:, i, :, None].float()
        if beta is not None:
            value = (value - (key * state).sum(2, keepdim=True)) * beta[:, i, :, None, None]
        state = state + key * value
        read.append((scale * q[:, i, :, :, None] * state).sum(2))
    return torch.stack(read, 1).to(v.dtype), state


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("erases", [False, True])
def test_a_recurrence_is_that_of_its_steps(monkeypatch, decays, erases):
    calls = []
    monkeypatch.setattr(fla, "_runs_on", lambda x: True)
    monkeypatch.setattr(fla, "operation_of", lambda *facts: calls.append(facts) or operation)
    q, k, v = torch.randn(B, H, T, D), torch.randn(B, H, T, D), torch.randn(B, H, T, E)
    k = torch.nn.functional.normalize(k, dim=-1)
    decay = -torch.rand(1, H, T) if decays else None
    beta = torch.rand(B, H, T) if erases else None
    r, state = Recurrence(q, k, v, decay, beta), torch.randn(B, H, D, E)
    found = fla.FlashLinearAttention().recur(r, state, chunk=4)
    assert calls == [(decays, erases)]
    for one, other in zip(found, steps(r, state), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.03, atol=0.03)


def test_without_cuda_and_with_documents_it_is_the_chunked_kernel(monkeypatch):
    monkeypatch.setattr(fla, "operation_of", lambda *facts: pytest.fail("a CPU has no Triton"))
    x, state = torch.randn(B, H, T, D), torch.zeros(B, H, D, D)
    segment = torch.tensor([[0, 0, 0, 1, 1, 2, 2]])
    for r in (Recurrence(x, x, x), Recurrence(x, x, x, segment=segment)):
        monkeypatch.setattr(fla, "_runs_on", lambda x, r=r: r.segment is not None)
        out, _ = fla.FlashLinearAttention().recur(r, state, chunk=4)
        torch.testing.assert_close(out, steps(r, state)[0])


def test_without_the_library_it_is_refused(monkeypatch):
    monkeypatch.setattr(fla.importlib.util, "find_spec", lambda name: None)
    sentence = r"kernel.*needs flash-linear-attention, which is not installed \(pip install"
    with pytest.raises(ConfigError, match=sentence):
        compose(["attn=gated_delta", "kernel=fla"], data=False)
