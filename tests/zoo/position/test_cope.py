"""Position cope: its equation written out."""

import math
import os

import torch

from tests.content_scores import HEADS, LENGTH, PAIRS, STACKS, attention
from tests.messages import messages
from xformer_kit.laws import faults, tiny_config

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@STACKS
@torch.no_grad()
def test_cope_is_its_equation(model):
    """In an encoder a token counts all from j on, those after itself too; padding is not
    counted.
    """
    real = torch.arange(LENGTH)[None] < 11
    _, place, (q, k, v), out = attention({"name": "cope", "longest": 4}, model, real)
    scores = torch.full((HEADS, LENGTH, LENGTH), -math.inf, dtype=torch.float64)
    for i, j in PAIRS:
        end = min(i + 1, 11) if model == "decoder" else 11
        if j >= end:
            continue
        gates = torch.sigmoid((q[:, i, None] * k[:, j:end]).sum(-1) * 0.4)
        at = gates.sum(-1).clamp(max=3)
        low, high = place.weight[at.floor().long()], place.weight[at.ceil().long()]
        share = (at - at.floor())[:, None]
        scores[:, i, j] = (q[:, i] * (k[:, j] + high * share + low * (1 - share))).sum(-1) * 0.4
    torch.testing.assert_close(out[:, :11], (scores.softmax(-1) @ v)[:, :11])


def test_faults_have_the_expected_sentences():
    assert messages(faults(tiny_config(position={"name": "cope", "longest": 1}))) == [
        "position.longest: must be at least 2 counts; got 1."
    ]
    assert messages(faults(tiny_config(position="cope", kernel="sdpa"))) == [
        "kernel: 'sdpa' cannot: position 'cope' computes scores of its own, and sdpa computes"
        " them itself. Use kernel=auto or kernel=reference."
    ]
