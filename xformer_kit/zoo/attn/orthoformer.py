"""Orthoformer attention: through landmarks that are nearly orthogonal queries."""

import torch
from torch import Tensor

from xformer_kit.attention import ATTENTIONS, at_least_fp32
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Fault
from xformer_kit.tensors.tokens import scaled_to_unit
from xformer_kit.zoo.attn._landmarks import LandmarkAttention
from xformer_kit.zoo.attn._whole_text import BREAKS, all_pairs_context


@ATTENTIONS.register("orthoformer", similar=("orthogonal_landmarks", "motionformer"))
class Orthoformer(LandmarkAttention):
    """softmax(q P^T) (softmax(P k^T) v) in each head, with queries P of the text, nearly orthogonal
    to each other, as prototypes (Patrick et al., 2021, arXiv:2106.05392).

    Scores are scaled. P is selected greedily: first the query of largest norm, then the one whose
    largest |cos| with those in P is the smallest. A shorter text has as many landmarks as tokens.
    Memory is linear in the length. Positions may rotate.
    """

    # Paper: starts with a random query.   Here: with the one of largest norm, so that the result is
    # deterministic and does not depend on the order of the tokens.

    variants = [{"landmarks": 4, "bias": True, "scale": 0.3}]
    breaks = BREAKS | {
        "kernels in bf16": (
            "the choice of prototypes is not continuous, and rounding to 8 bits can change the"
            " order of two close angles"
        )
    }

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        *,
        heads: int = 8,  # heads
        head_dim: int | None = None,  # channels of a head; null is dim / heads
        landmarks: int = 64,  # prototypes of a text
        bias: bool = False,  # whether the four projections have biases
        scale: float | None = None,  # factor on scores; null is head_dim^-0.5
    ):
        super().__init__(dim, kernel, heads, head_dim, landmarks, bias, scale)

    @classmethod
    def cannot(cls, options, context):
        if not context.position.isometric:
            yield Fault(
                "",
                f"position '{context.names['position']}' makes queries longer and shorter, so that"
                " their angles, by which orthoformer chooses landmarks, would depend on where a"
                " text begins",
                fix="Choose position=rotary.",
            )
            return
        yield from super().cannot(options, context)

    def attend_landmarks(self, q, k, v, context, length, real):
        chosen, has_token = self._chosen(q.detach(), real)
        # (rows, h, landmarks, d)
        marks = q.gather(2, chosen[..., None].expand(-1, -1, -1, q.shape[-1]))
        pair_context = all_pairs_context(context, self.kernel, marks, k, None, real)
        read = self.kernel(marks, k, v, pair_context, self.scale)
        pair_context = all_pairs_context(context, self.kernel, q, marks, None, has_token)
        return self.kernel(q, marks, read, pair_context, self.scale)

    def _chosen(self, q: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The tokens whose queries are prototypes, (rows, h, m), and where rows differ, how many of
        them a text has: which of the m there are, (rows, m).
        """
        unit, padding = scaled_to_unit(q), None if real is None else ~real[:, None]
        length = at_least_fp32(q).norm(dim=-1)
        nearest = torch.zeros_like(length)  # largest |cos| of each query with those chosen
        if padding is not None:
            length = length.masked_fill(padding, -1.0)
        best = length.argmax(-1, keepdim=True)
        found = [best]
        for _ in range(1, min(self.landmarks, q.shape[2])):
            mark = unit.gather(2, best[..., None].expand(-1, -1, -1, q.shape[-1]))
            nearest = torch.maximum(nearest, (unit @ mark.mT)[..., 0].abs())
            nearest = nearest.scatter(-1, best, 2.0)  # so that it is not chosen again
            candidates = nearest if padding is None else nearest.masked_fill(padding, 3.0)
            best = candidates.argmin(-1, keepdim=True)
            found.append(best)
        chosen = torch.cat(found, -1)
        if real is None:
            return chosen, None
        return chosen, torch.arange(chosen.shape[-1], device=q.device) < real.sum(-1, keepdim=True)
