"""One key, drawn with the probabilities of softmax."""

import torch

from xformer_kit.attention import SCORES, Score, at_least_fp32
from xformer_kit.registry import above
from xformer_kit.zoo.score._largest import straight_through


@SCORES.register("gumbel", also_called=("gumbel_softmax",), similar=("drawn",))
class Gumbel(Score):
    """One key, drawn with the probabilities softmax(s) in training, and the most likely one
    otherwise.

    It is the largest of s + g, g = -log(-log u) with u uniform in (0, 1), with the gradient of
    softmax((s + g) / temperature) (straight-through Gumbel-softmax: Jang et al., 2016,
    arXiv:1611.01144, section 2.2). Outside of training nothing is drawn: g = 0.
    """

    # x-transformers draws outside of training too.

    def __init__(
        self,
        *,
        temperature: float = 1.0,  # of the softmax that has the gradient; low values favour one key
        hard: bool = True,  # whether one key has all weight; false: softmax((s + g) / temperature)
    ):
        super().__init__()
        self.temperature = temperature
        self.hard = hard

    @classmethod
    def check(cls, options, context):
        yield from above(options, temperature=0)

    def weights(self, scores):
        if self.training:
            noise = torch.empty_like(at_least_fp32(scores)).exponential_().log()
            scores = scores - noise.to(scores.dtype)
        # Relative to the largest, or a low temperature would make several of them infinite.
        top = scores.detach().amax(-1, keepdim=True)
        soft = ((scores - top) / self.temperature).softmax(-1)
        return straight_through(scores, soft) if self.hard else soft
