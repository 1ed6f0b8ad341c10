"""attn orthoformer: equal to its equation, written out token by token."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.attentions import HEADS, SHORT, WIDE, short_layer
from xformer_kit.laws import LAWS, tiny_config


@torch.no_grad()
@pytest.mark.parametrize("landmarks", [3, 64])
def test_orthoformer_by_its_equations(landmarks):
    attn, x, out = short_layer({"name": "orthoformer", "landmarks": landmarks}, model="encoder")
    for b in range(len(SHORT)):
        heads = []
        for i in range(HEADS):
            q, k, v = (m(x[b])[:, WIDE * i :][:, :WIDE] for m in (attn.q, attn.k, attn.v))
            chosen = [int(q.norm(dim=-1).argmax())]
            while len(chosen) < min(landmarks, len(q)):
                others = [n for n in range(len(q)) if n not in chosen]
                overlap = {
                    n: torch.cosine_similarity(q[n], q[chosen]).abs().max().item() for n in others
                }
                chosen.append(min(overlap, key=overlap.get))
            p = q[chosen]
            read = (p @ k.T / WIDE**0.5).softmax(-1) @ v
            heads.append((q @ p.T / WIDE**0.5).softmax(-1) @ read)
        assert_close(out[b], attn.o(torch.cat(heads, -1)))


def test_orthoformer_turns_with_a_rotation_and_keeps_its_law():
    config = tiny_config("encoder", attn="orthoformer", position="rotary")
    for law in ("shift", "padding", "documents"):
        assert LAWS[law](config) is None


REFUSED = {
    (
        "model=encoder task=masked_language_modeling position=learned "
        "attn=orthoformer attn.landmarks=0"
    ): ("attn.landmarks: must be at least 1; got 0."),
}


test_refused_configs = refusals(REFUSED)
