"""Lengths by content and angles by position: the equation, and x-transformers' own functions."""

import math

import pytest
import torch

from tests.content_scores import HEADS, PAIRS, STACKS, attention, mixed
from tests.messages import messages
from xformer_kit.laws import faults, tiny_config
from xformer_kit.model.build import build_model

LENGTH = 13


@STACKS
@torch.no_grad()
def test_polar_is_its_equation(model):
    _, place, (q, k, v), out = attention({"name": "polar", "theta": 50.0}, model)
    q, k, d = (
        torch.nn.functional.softplus(q),
        torch.nn.functional.softplus(k),
        place.angle.clamp(-2 * math.pi, 0),
    )
    rate = 50.0 ** (-torch.arange(10) / 10).double()
    scores = torch.zeros(HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for i, j in PAIRS:
        scores[:, i, j] = (q[:, i] * k[:, j] * torch.cos((i - j) * rate - d)).sum(-1) * 0.4
    torch.testing.assert_close(out, mixed(scores, v, model == "decoder"), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_polar_is_that_of_x_transformers():
    theirs = pytest.importorskip("x_transformers.x_transformers")
    _, place, (q, k, v), out = attention({"name": "polar"}, "encoder")
    embedding = theirs.PolarEmbedding(10, HEADS)
    embedding.learned_bias.copy_(place.angle[:, None])
    freqs, bias = embedding(torch.arange(LENGTH))
    scores = (
        theirs.apply_polar_pos_emb(q[None], freqs[:, None])
        @ theirs.apply_polar_pos_emb(k[None], freqs[:, None] + bias).mT
    )
    torch.testing.assert_close(out[None], mixed(scores * 0.4, v, False), rtol=1e-5, atol=1e-5)


def test_angles_start_at_zero_or_are_drawn():
    for start, low in (("zero", 0), ("uniform", -2 * math.pi)):
        place = build_model(
            tiny_config(position={"name": "polar", "start": start}), 37
        ).decoder.position["base"]
        assert low <= place.angle.min() <= low / 2
        assert low / 2 <= place.angle.max() <= 0


def test_faults_have_the_expected_sentences():
    assert messages(faults(tiny_config(position={"name": "polar", "theta": 0}))) == [
        "position.theta: must be above 0; got 0."
    ]
    (sentence,) = messages(faults(tiny_config(position="polar", kernel="sdpa")))
    assert sentence.startswith("kernel: 'sdpa' cannot: position 'polar' computes scores of its own")
