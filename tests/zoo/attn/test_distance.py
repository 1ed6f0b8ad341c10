"""attn=distance, and rotation of some heads: by equation, as in x-transformers, and under laws."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close
from x_attention import DIM, HEAD_DIM, HEADS, LENGTH, ours, peer, run, state_of, theirs, x

from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import Tokens


@torch.no_grad()
def test_the_layer_is_that_of_x_transformers():
    layer = theirs(l2_distance=True)
    mine = ours("distance")
    mine.load_state_dict(state_of(layer))
    assert_close(run(mine, x()), layer(x()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [5, 8])
def test_products_are_minus_squared_distances(width):
    mine = ours("distance", head_dim=width)
    q, k = torch.randn(2, 6, 5, width).double(), torch.randn(2, 3, 7, width).double()
    wide, keys, _ = mine.kernel_inputs(q, k, None)
    exact = -((q[..., None, :] - k.repeat_interleave(2, 1)[..., None, :, :]) ** 2).sum(-1)
    assert_close(wide @ keys.repeat_interleave(2, 1).mT, exact)
    assert wide.shape[-1] == keys.shape[-1] == {5: 7, 8: 16}[width]
    given = q @ k.repeat_interleave(2, 1).mT * mine.scale
    assert_close(mine.kernel_inputs(q, k, given)[2], exact * mine.scale)


@pytest.mark.parametrize("law", ["cache", "kernels", "gradients", "shift", "documents"])
def test_laws(law):
    assert (
        LAWS[law](tiny_config(attn={"name": "distance", "bias": True}, position="rotary")) is None
    )


@torch.no_grad()
def test_rotation_of_some_heads_is_that_of_x_transformers():
    layer = theirs(rotate_num_heads=2)
    mine = ours()
    mine.load_state_dict(state_of(layer))
    rotary = peer.RotaryEmbedding(HEAD_DIM, base=100.0).double()
    expected = layer(x(), rotary_pos_emb=rotary.forward_from_seq_len(LENGTH))
    given = {"position": "rotary", "theta": 100.0, "pairing": "interleaved", "rotated_heads": 2}
    assert_close(run(mine, x(), **given), expected, rtol=1e-4, atol=1e-5)


def test_keys_turn_with_the_queries_that_read_them():
    place = POSITIONS.create(
        {"name": "rotary", "rotated_heads": 4},
        dim=DIM,
        heads=HEADS,
        head_dim=HEAD_DIM,
        max_len=LENGTH,
        layers=1,
    )
    tokens = Tokens(ids=torch.zeros(1, 3, dtype=torch.long)).with_positions()
    turns = place.prepare(tokens, tokens)
    for heads, first in ((6, 2), (3, 1)):
        q = torch.randn(1, heads, 3, HEAD_DIM)
        moved = (turns.rotate(q, tokens) != q).flatten(2).any(-1)[0]
        assert moved.tolist() == [False] * first + [True] * (heads - first)


REFUSED = {
    "attn=distance attn.score=relu2": (
        "attn: scores are minus squared distances, and attn.score 'relu2' works with what is above"
        " 0. Choose attn.score=softmax."
    ),
    "attn=distance position=xpos": (
        "attn: position 'xpos' makes queries and keys longer and shorter, so that their"
        " distance would depend on their positions. Choose position=rotary."
    ),
    "attn.heads=8 attn.kv_heads=4 position.rotated_heads=3": (
        "position.rotated_heads: must be a multiple of the 2 heads that share a key, at most"
        " attn.heads; got 3 and 8. Try 8, or null."
    ),
    "attn=latent attn.heads=8 position.rotated_heads=4": (
        "position.rotated_heads: must be a multiple of the 8 heads that share a key, at most"
        " attn.heads; got 4 and 8. Try 8, or null."
    ),
    "position.rotated_heads=9": (
        "position.rotated_heads: must be a multiple of the 1 heads that share a key, at most"
        " attn.heads; got 9 and 8. Try 8, or null."
    ),
    "position.rotated_heads=0": "position.rotated_heads: must be at least 1 head; got 0.",
}


test_refused_configs = refusals(REFUSED)
