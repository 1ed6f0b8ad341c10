"""What holds for every position that adds a bias to scores."""

import pytest
import torch

from tests.positions import bias, random_position
from xformer_kit.tensors.tokens import Tokens


@pytest.mark.parametrize(
    "node", ["t5", "alibi", "fire", "kerple", {"name": "kerple", "kernel": "power"}], ids=str
)
def test_a_bias_is_point_wise(node):
    """A kernel may compute it for one pair of tokens and one head at a time."""
    place = random_position({"name": node} if isinstance(node, str) else node)
    whole, q, k = bias(place, 9), Tokens(position=torch.arange(9)), Tokens(position=torch.arange(9))

    def one(h, i, j):
        return place.bias(q.map(lambda x: x[i]), k.map(lambda x: x[j]), h)

    h, i, j = torch.meshgrid(torch.arange(6), torch.arange(9), torch.arange(9), indexing="ij")
    got = torch.func.vmap(one)(h.flatten(), i.flatten(), j.flatten()).unflatten(0, (6, 9, 9))
    torch.testing.assert_close(got, whole)
