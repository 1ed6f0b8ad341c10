"""Routers whose loads are even by themselves: experts choose, or tokens take turns."""

import torch

from xformer_kit.ffn.grouped import Groups
from xformer_kit.ffn.router import ROUTERS, Learned, Router, Routes, counted, sent


@ROUTERS.register("expert_choice", also_called=("ec",))
class ExpertChoice(Learned):
    """Each expert takes the tokens with the highest softmax(logits) for it, all experts as many:
    top_k * tokens / experts (Zhou et al., 2022, arXiv:2202.09368, section 3.2).

    So a token has `top_k` experts on average, each weighed by that score, and loads are even
    without a loss.
    """

    # Paper: experts choose among the tokens of a batch.   Here: among those of a row, so that rows
    # stay independent.

    breaks = {
        "causality": (
            "whether an expert takes a token depends on all others of its text, also on later ones"
        ),
        "cache": "whether an expert takes a token depends on tokens that are not written yet",
        "documents": (
            "an expert takes the best tokens of a row, in which texts stand beside each other"
        ),
    }

    def __init__(
        self,
        dim: int,
        experts: int,
        top_k: int,
        *,
        bias: bool = False,  # whether logits have a learned bias
        z_loss: float = 0.0,  # factor of the loss for small logits
    ):
        super().__init__(dim, experts, bias, z_loss)
        self.top_k = top_k

    @classmethod
    def cannot(cls, context):
        if context.mask.sees_future:
            return None
        return (
            "router 'expert_choice' lets an expert choose among all tokens of a text, and mask"
            f" '{context.names['mask']}' hides the later ones. Use ffn.router.name=softmax, or"
            " mask=full in an encoder."
        )

    def forward(self, x, tokens):
        (b, t, _), real = x.shape, tokens.real
        logits = self.logits(x)  # (b, t, experts)
        scores = logits.softmax(-1)
        lengths = torch.full((b,), t, device=x.device) if real is None else real.sum(-1)
        if real is not None:
            scores = scores.masked_fill(~real[..., None], -1.0)  # behind every other
        most = -(-self.top_k * t // self.experts)
        best, token = scores.transpose(1, 2).topk(most, -1)  # (b, experts, most)
        takes = -(-self.top_k * lengths // self.experts)  # of each row
        taken = torch.arange(most, device=x.device) < takes[:, None, None]
        weight = torch.where(taken, best, 0.0)
        token = token + t * torch.arange(b, device=x.device)[:, None, None]
        rows = [part.transpose(0, 1).flatten() for part in (token, weight)]  # expert by expert
        expert = torch.arange(self.experts, device=x.device).repeat_interleave(b * most)
        counts = torch.full((self.experts,), b * most, device=x.device)
        routes = Routes(Groups.of(counts), expert, *rows)
        if not self.reports:
            return routes, {}
        load = taken.sum((0, 2)).expand(self.experts)
        report = {"load": load}
        if self.z_loss:
            ones = logits.new_ones(b, t) if real is None else real.to(logits)
            report["loss"] = self._z_loss(logits, ones)
        return routes, report


@ROUTERS.register("round_robin", also_called=("roundrobin", "in_turn"))
class RoundRobin(Router):
    """Tokens of a text take turns: token i has the experts i top_k, ..., i top_k + top_k - 1 modulo
    their number.

    Weights are 1 / top_k, whatever a token says (xformers, Meta, 2021: `RoundRobinGate`): even
    loads, and nothing to learn, to compare routers with.
    """

    # xformers: tokens of a batch take turns.   Here: those of each text, so that texts do not
    # depend on each other.

    breaks = {
        "shift": "which experts take a token follows from its place in the text",
        "symmetry": "which experts take a token follows from its place in the text",
        "source order": "which experts take a token follows from its place in the text",
    }

    def __init__(self, dim: int, experts: int, top_k: int):
        super().__init__(experts)
        self.top_k = top_k

    def forward(self, x, tokens):
        (b, t, _), real = x.shape, tokens.real
        position = (
            torch.arange(t, device=x.device)[None] if tokens.position is None else tokens.position
        )
        turns = position.long().expand(b, -1).flatten()[:, None] * self.top_k
        chosen = (turns + torch.arange(self.top_k, device=x.device)) % self.experts  # (tokens, k)
        weight = x.new_full(
            chosen.shape, 1 / self.top_k, dtype=torch.promote_types(x.dtype, torch.float32)
        )
        routes = sent(chosen, weight, self.experts)
        if not self.reports:
            return routes, {}
        ones = (
            None
            if real is None
            else real.expand(b, -1).flatten()[:, None].expand_as(chosen).flatten().to(chosen)
        )
        return routes, {"load": counted(chosen.flatten(), self.experts, ones)}
