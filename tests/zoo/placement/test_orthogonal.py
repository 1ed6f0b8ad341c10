"""Placement orthogonal: the update of x-transformers for a single token."""

import pytest
import torch
from placements import DIM, F, G, X, group, random_placement
from torch.testing import assert_close

from xformer_kit.tensors.tokens import UNKNOWN
from xformer_kit.zoo.placement.orthogonal import orthogonal_part


def test_what_is_added_is_orthogonal_to_the_stream():
    part = random_placement("orthogonal", ["attn", "ffn"], shared=False, eps=1e-12)
    (got,) = part((X,), group(F, G, factor=0.5), UNKNOWN)
    added = got - X
    assert_close((added * X).sum(-1), torch.zeros(X.shape[:-1], dtype=X.dtype))
    said = 0.5 * (F(part.norm[0](X)) + G(part.norm[1](X)))
    unit = X / X.norm(dim=-1, keepdim=True)
    assert_close(added, said - (unit[..., None] * unit[..., None, :] @ said[..., None])[..., 0])


def test_of_a_single_token_it_is_the_update_of_x_transformers():
    theirs = pytest.importorskip("x_transformers.x_transformers").OrthogonalResidualUpdate(DIM)
    part = random_placement("orthogonal", ["attn"], eps=1e-12)
    x = X.flatten(0, 1)[:, None]  # each token a text of its own
    assert_close(part((x,), group(F), UNKNOWN)[0], theirs(F(part.norm[0](x)), x))


def test_eps_by_eye():
    x, y = torch.tensor([3.0, 0.0]), torch.tensor([1.0, 2.0])
    assert_close(orthogonal_part(y, x, 1.0), torch.tensor([0.1, 2.0]))
    assert orthogonal_part(y.bfloat16(), x.bfloat16(), 1.0).dtype == torch.bfloat16
