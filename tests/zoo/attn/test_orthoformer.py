"""attn orthoformer: equal to its equation, written out token by token."""

import pytest
import torch
from refusing import refusals
from torch.testing import assert_close

from xformer_kit.laws import LAWS, tiny
from xformer_kit.laws.case import VOCAB, Case, randomise
from xformer_kit.model.build import build_model

DRAWN = Case(tiny(), "").ids[:2, :8]

HEADS, WIDE = 6, 10


def made(attn, model="decoder", **more):
    built = build_model(
        tiny(model, attn=attn, position=more.pop("position", "none"), **more), VOCAB
    )
    randomise(built)
    return built.double().eval()


def layer(attn, **more):
    """An attention of a randomised model, with what it reads and what it gives."""
    model, held = made(attn, **more), []
    model.stack.blocks[0].attn.register_forward_hook(
        lambda _, args, out: held.extend((args[0], out))
    )
    model(DRAWN)
    return model.stack.blocks[0].attn, *held


@torch.no_grad()
@pytest.mark.parametrize("landmarks", [3, 64])
def test_orthoformer_by_its_equations(landmarks):
    attn, x, out = layer({"name": "orthoformer", "landmarks": landmarks}, model="encoder")
    for b in range(len(DRAWN)):
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
    config = tiny("encoder", attn="orthoformer", position="rotary")
    for law in ("shift", "padding", "documents"):
        assert LAWS[law](config) is None


REFUSED = {
    (
        "model=encoder task=masked_language_modeling position=learned "
        "attn=orthoformer attn.landmarks=0"
    ): ("attn.landmarks: must be at least 1; got 0."),
}


test_refused_configs = refusals(REFUSED)
