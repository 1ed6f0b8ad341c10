"""A router in which experts choose their tokens, so that loads are even."""

import torch

from xformer_kit.ffn.grouped import Groups
from xformer_kit.ffn.learned_router import LearnedRouter
from xformer_kit.ffn.routes import ROUTERS, Routes
from xformer_kit.registry import Fault


@ROUTERS.register("expert_choice", also_called=("ec",))
class ExpertChoice(LearnedRouter):
    """Each expert computes the top_k * tokens / experts tokens with the highest softmax(logits) for
    it (Zhou et al., 2022, arXiv:2202.09368, section 3.2).

    A token has `top_k` experts on average, each weighted by that score, and loads are even without
    an auxiliary loss.
    """

    # Paper: experts choose among the tokens of a batch.   Here: among those of a row, so that rows
    # stay independent.

    breaks = {
        "causality": (
            "whether an expert computes a token depends on all tokens of its text, also later ones"
        ),
        "cache": "whether an expert computes a token depends on tokens that do not exist yet",
        "documents": ("an expert computes the best tokens of a row, which may hold several texts"),
    }

    def __init__(
        self,
        dim: int,
        experts: int,
        top_k: int,
        *,
        bias: bool = False,  # whether logits have a learned bias
        z_loss: float = 0.0,  # factor of the loss that keeps logits small
    ):
        super().__init__(dim, experts, bias, z_loss)
        self.top_k = top_k

    @classmethod
    def cannot(cls, options, context):
        if context.mask.sees_future:
            return
        yield Fault(
            "",
            "'expert_choice' lets an expert choose among all tokens of a text, and mask"
            f" '{context.names['mask']}' hides the later ones",
            fix="Use ffn.router.name=softmax, or mask=full in an encoder.",
        )

    def forward(self, x, tokens):
        """x (b, t, dim) -> routes of ceil(top_k * t / experts) rows per text and expert; report."""
        (b, t, _), real = x.shape, tokens.real
        logits = self.logits(x)  # (b, t, experts)
        scores = logits.softmax(-1)
        lengths = torch.full((b,), t, device=x.device) if real is None else real.sum(-1)
        if real is not None:
            scores = scores.masked_fill(~real[..., None], -1.0)  # below all real tokens
        most = -(-self.top_k * t // self.experts)
        highest, token = scores.transpose(1, 2).topk(most, -1)  # (b, experts, most)
        limit = -(-self.top_k * lengths // self.experts)  # tokens per expert, of each row
        selected = torch.arange(most, device=x.device) < limit[:, None, None]
        weight = torch.where(selected, highest, 0.0)
        token = token + t * torch.arange(b, device=x.device)[:, None, None]
        rows = [x.transpose(0, 1).flatten() for x in (token, weight)]  # expert by expert
        expert = torch.arange(self.experts, device=x.device).repeat_interleave(b * most)
        counts = torch.full((self.experts,), b * most, device=x.device)
        routes = Routes(Groups.of(counts), expert, *rows)
        if not self.reports:
            return routes, {}
        report = {"load": selected.sum((0, 2)).expand(self.experts)}
        if self.z_loss:
            ones = logits.new_ones(b, t) if real is None else real.to(logits)
            report["loss"] = self._z_loss(logits, ones)
        return routes, report
