"""Router round_robin, by eye."""

import torch

from xformer_kit.ffn import ROUTERS
from xformer_kit.tensors.tokens import Tokens


def test_experts_in_turn_by_eye():
    router = ROUTERS.create("round_robin", dim=4, experts=3, top_k=2)
    routes, report = router(
        torch.zeros(2, 4, 4), Tokens(real=torch.arange(4) < torch.tensor([[4], [2]]))
    )
    assert report["load"].tolist() == [3 + 2, 3 + 1, 2 + 1]
    taken = [sorted(routes.expert[routes.token == token].tolist()) for token in range(8)]
    assert taken == [[0, 1], [0, 2], [1, 2], [0, 1]] * 2
    assert routes.weight.unique().tolist() == [0.5]
    later, _ = router(
        torch.zeros(1, 2, 4), Tokens(position=torch.tensor([[5, 6]]))
    )  # in the midst of a text
    assert [sorted(later.expert[later.token == token].tolist()) for token in range(2)] == [
        [1, 2],
        [0, 1],
    ]
