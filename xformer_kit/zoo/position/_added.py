"""What is added to scores, read from the content."""

from typing import Any, NamedTuple

from torch import Tensor

from xformer_kit.model.tokens import View
from xformer_kit.position import spread, still


class Added(NamedTuple):
    """What is added to the scaled scores of one attention, (b, h, q, k)."""

    added: Tensor

    rotate = rotate_key = still  # type: ignore[misc]

    def scores(self, attn: Any, q: Tensor, k: Tensor, view: View) -> Tensor:
        content = q @ spread(k, q.shape[1]).mT * attn.scale
        return content + self.added.to(content.dtype)
