"""Small models whose logits have clear gaps."""

import pytest
import torch

from xformer_kit import build, compose

SMALL = [
    "model.dim=16",
    "model.layers=1",
    "attn.heads=2",
    "data.seq_len=64",
    "model.tie_embeddings=false",
]


def build_small(kind="decoder", vocab=11, seed=15, scale=2.0, *more):
    """A model: its stacks, vocabulary, seed and scale of the weights, and overrides."""
    task = ["task=seq2seq"] if kind == "encoder_decoder" else []
    model = build(compose([f"model={kind}", *task, *SMALL, *more]), vocab_size=vocab).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.copy_(torch.randn(p.shape, generator=draw) * scale * p.shape[-1] ** -0.5)
    return model


@pytest.fixture(scope="session")
def small():
    return build_small
