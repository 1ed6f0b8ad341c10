"""Positions with random parameters: their biases, and vectors that they rotate."""

import torch

from xformer_kit.laws.tiny_composition import randomise
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import Tokens


def random_position(node: dict, heads: int = 6, stack: str = "decoder"):
    """Returns a position in float64 with random parameters."""
    place = POSITIONS.create(
        node, dim=12, heads=heads, head_dim=4, max_len=16, layers=2, stack=stack
    ).double()
    randomise(place)
    return place


def bias(place, length: int, heads: int = 6, first: int = 0) -> torch.Tensor:
    """Returns the bias (heads, length, length) of tokens at positions first, first + 1, ..."""
    tokens = Tokens(position=torch.arange(first, first + length)[None])
    head = torch.arange(heads).view(1, -1, 1, 1)
    return place.bias(tokens.as_query(), tokens.as_key(), head).expand(1, heads, length, length)[0]


def rotated(node: dict, x: torch.Tensor, head_dim: int = 8) -> torch.Tensor:
    """Returns vectors (b, h, t, head_dim) rotated by a rotary position."""
    position = POSITIONS.create({"name": "rotary", **node}, head_dim=head_dim, max_len=16)
    tokens = Tokens(slot=torch.arange(x.shape[2])[None], position=torch.arange(x.shape[2])[None])
    return position.prepare(tokens, tokens).rotate(x, tokens)
