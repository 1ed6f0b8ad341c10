"""Softmax between mixtures of heads."""

import torch
from torch import Tensor, nn

from xformer_kit.attention import SCORES, Score
from xformer_kit.registry import Fault
from xformer_kit.tensors import vector


@SCORES.register("talking_heads", also_called=("talking", "th"))
class TalkingHeads(Score):
    """softmax(s P) W: heads are mixed before and after the softmax, each time by a matrix (heads,
    heads) that starts at the identity (Shazeer et al., 2020, arXiv:2003.02436). scaled: weights are
    multiplied by s M, with a third matrix M, as in x-transformers
    (attn_pre_scale_post_talking_heads).
    """

    variants = [{"scaled": True}]

    parameter_info = {
        name: vector("heads", "heads") for name in ("logits", "probabilities", "factors")
    }

    def __init__(
        self,
        heads: int,
        *,
        logits: bool = True,  # whether scores are mixed
        probabilities: bool = True,  # whether weights are mixed
        scaled: bool = False,  # whether weights are multiplied by mixed scores
    ):
        super().__init__()
        self.logits = nn.Parameter(torch.eye(heads)) if logits else None
        self.probabilities = nn.Parameter(torch.eye(heads)) if probabilities else None
        self.factors = nn.Parameter(torch.eye(heads)) if scaled else None

    @classmethod
    def check(cls, options, context):
        if not options.logits and not options.probabilities and not options.scaled:
            yield Fault(
                "logits",
                "must be true if probabilities=false and scaled=false",
                fix="Set one of them, or attn.score.name=softmax.",
            )

    @classmethod
    def signed(cls, options):
        return bool(options["probabilities"] or options["scaled"])

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.eye(*shape)

    def forward(self, scores, seen):
        weights = super().forward(scores, seen)
        return weights if self.factors is None else weights * mixed(scores, self.factors)

    def before(self, scores):
        return scores if self.logits is None else mixed(scores, self.logits)

    def weights(self, scores):
        return scores.softmax(-1)

    def after(self, weights):
        return weights if self.probabilities is None else mixed(weights, self.probabilities)


def mixed(x: Tensor, matrix: Tensor) -> Tensor:
    """Head j of the result is the sum over i of head i times matrix[i, j]."""
    return torch.einsum("bits,ij->bjts", x, matrix.to(x.dtype))
