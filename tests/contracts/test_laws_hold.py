"""The throw-away parts keep the laws that every registered part keeps."""

import pytest

from xformer_kit.laws import LAWS, tiny

PARTS = {
    "latent": {"attn": "test_latent"},
    "first_values": {"attn": "test_first_values"},
    "linear": {"attn": "test_linear", "position": "learned"},
    "t5": {"position": "test_t5"},
    "disentangled": {"position": "test_disentangled"},
    "residual": {"placement": "test_residual"},
    "router": {"ffn": "test_router"},
}
# What a law does not speak of, by the part's own word: everything else is kept, not skipped.
SILENT = {
    "linear": {"documents", "shift", "symmetry", "nothing", "kernels"},
    "disentangled": {"symmetry", "kernels"},
}


@pytest.mark.parametrize("name", PARTS)
def test_every_law_is_kept_or_named(name):
    reasons = {law: keeps(tiny(**PARTS[name])) for law, keeps in LAWS.items()}
    assert {law for law, reason in reasons.items() if reason} == SILENT.get(name, {"symmetry"})
    if name == "linear":
        assert "a sum over the past does not tell documents apart" in reasons["documents"]
