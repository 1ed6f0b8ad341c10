"""Routers: they select the experts that compute each token, and their weights.

A router is a component of ffn=moe: ffn.router.name=sigmoid ffn.router.scale=2.5. Without a capacity
no token is dropped: an expert computes all tokens that choose it. Padding does not count in loads
and losses.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.ffn.balance import BalanceLoss
from xformer_kit.ffn.grouped import Groups
from xformer_kit.ffn.learned_router import LearnedRouter
from xformer_kit.ffn.routes import ROUTERS, Routes, count_experts, route_all
from xformer_kit.registry import (
    Fault,
    OptionGroup,
    Unused,
    above,
    alternatives,
    at_least,
    at_most,
    divisors,
    format_value,
    independent_check,
)
from xformer_kit.tensors import hidden, vector
from xformer_kit.tensors.report import Report


@dataclass(frozen=True)
class ExpertGroups(OptionGroup):
    """Experts form `groups` groups, and a token's experts are in the `group_limit` groups with the
    highest score: that of the best expert (DeepSeek-V2: arXiv:2405.04434, section 2.2.2) or the sum
    of the best two.
    """

    groups: int = 1  # groups of experts
    group_limit: int = 1  # number of groups that a token's experts may be in
    # score of a group: of its best expert, or the sum of its best two
    group_score: Literal["max", "top2"] = "max"


ONE_GROUP = ExpertGroups()


class TokenChoice(LearnedRouter):
    """Base: each token is computed by the `top_k` experts with the highest score s, weighted by it.

    renormalise: weights are divided by their sum. balance: factor of the loss experts * sum_i f_i
    P_i, with f_i the share of choices of expert i and P_i its mean share of scores, which is 1 if
    all are even (Switch, eq. 4; for several experts per token DeepSeek-V2, section 2.2.3). f_i is
    that of all micro-batches and ranks of the last step (`BalanceLoss`).
    correction: instead of a loss, a bias that is added to the scores for the choice but not for the
    weights; after each step it increases by this number for experts with less than the mean load
    and decreases for those with more (Wang et al., 2024, arXiv:2408.15664, algorithm 1). capacity
    c: in training an expert computes at most ceil(c * top_k * tokens / experts) tokens of a row,
    the first ones, and drops the others (Switch, eq. 3; GShard: Lepikhin et al., 2020,
    arXiv:2006.16668, section 2.2, algorithm 1); the remaining weights are not renormalised. In
    evaluation and generation no token is dropped. With a capacity all experts compute the same
    number of rows, so shapes are known in advance.
    """

    # Papers: capacity is per batch, and first choices of all tokens precede second ones.   Here:
    # per row, token by token, so that no token depends on other rows or on later tokens.

    correction_bias: Tensor | None

    def __init__(
        self,
        dim: int,
        experts: int,
        top_k: int,
        *,
        bias: bool = False,  # whether logits have a learned bias
        renormalise: bool = True,  # whether a token's weights sum to 1
        scale: float = 1.0,  # factor on the weights
        grouping: ExpertGroups = ONE_GROUP,
        balance: float = 0.01,  # factor of the loss that balances loads
        # change per step of the bias that balances loads; 0: constant; null: none
        correction: float | None = None,
        # in training, limit of an expert's load in multiples of the mean; null: none
        capacity: float | None = None,
        z_loss: float = 0.0,  # factor of the loss that keeps logits small
    ):
        super().__init__(dim, experts, bias, z_loss)
        self.capacity = capacity
        self.top_k = top_k
        self.renormalise = renormalise
        self.scale = scale
        self.grouping = grouping
        self.balance = BalanceLoss(experts, balance)
        self.adds_loss |= bool(balance)
        self.correction = correction
        self.register_buffer(
            "correction_bias", None if correction is None else torch.zeros(experts)
        )
        if self.logits_unused:
            self.parameter_info = {
                "weight": hidden("experts", "dim", zero_gradient=True),
                "bias": vector("experts", bias=True, zero_gradient=True),
            }

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, balance=0, correction=0, groups=1, group_limit=1)
        yield from above(options, scale=0)
        yield from above(options, "null drops no token.", capacity=0)
        yield from cls.check_groups(options, context)

    @classmethod
    def breaks(cls, options):
        if options.capacity is None:
            return {}
        return {
            "documents": (
                "in training, an earlier text of a row can use up the capacity of an expert for the"
                " next text"
            )
        }

    @classmethod
    @independent_check
    def check_groups(cls, options, context):
        """Faults of groups that do not match the layer's number of experts."""
        if (moe := context.outer) is None or not 1 <= moe.top_k <= moe.experts:
            return  # a fault of the layer
        experts, top_k = moe.experts, moe.top_k
        groups, limit = options.groups, options.group_limit
        if experts % groups:
            yield Fault(
                "groups",
                "must divide ffn.experts",
                got=f"{groups} and {experts}",
                fix=f"Try {alternatives(divisors(experts))}.",
            )
        elif limit > groups:
            yield from at_most(options, "(ffn.router.groups)", group_limit=groups)
        elif options.group_score == "top2" and experts == groups:
            yield Fault(
                "group_score",
                f"'top2' takes two experts of a group, and {groups} groups of {experts} have one",
                fix="Try max.",
            )
        elif top_k > limit * experts // groups:
            rule = f"{limit} of {groups} groups have fewer experts than ffn.top_k={top_k}"
            yield Fault("group_limit", rule, fix="Choose more groups, or fewer experts.")

    @classmethod
    def cannot(cls, options, context):
        experts, top_k = context.outer.experts, context.outer.top_k
        groups, limit, score = options.groups, options.group_limit, options.group_score
        if limit == groups:
            rule = "a token may choose from all groups, as ffn.router.group_limit is their number"
            fix = "Leave groups and group_limit 1, and group_score max."
            for name, value, default in (("groups", groups, 1), ("group_score", score, "max")):
                if value != default:
                    yield Unused(name, rule, format_value(value), fix)
        elif score == "max" and top_k <= limit:
            yield Unused(
                "groups",
                f"the best ffn.top_k={top_k} experts are of the best ffn.router.group_limit={limit}"
                " groups, whose best they are",
                got=groups,
                fix="Try ffn.router.group_score=top2, or 1 group and a group_limit of 1.",
            )
        if options.correction is not None and top_k == experts:
            yield Unused(
                "correction",
                f"chooses a token's experts, and with ffn.top_k={top_k} it takes them all",
                got=options.correction,
                fix="Set it to null, or fewer ffn.top_k.",
            )
        if options.capacity is not None and options.capacity * top_k >= experts:
            yield Unused(
                "capacity",
                f"from ffn.experts / ffn.top_k = {experts / top_k:g} on, every expert may compute"
                " all tokens",
                got=options.capacity,
                fix="Set it to null.",
            )

    @property
    def logits_unused(self) -> bool:
        """Whether the loss is independent of the logits: one expert per token, of weight 1."""
        one_expert = self.experts == 1
        return (
            self.top_k == 1
            and (self.renormalise or (one_expert and self.scores_sum_to_one))
            and not self.z_loss
            and (not self.balance.factor or one_expert)
        )

    scores_sum_to_one = False  # whether the scores of all experts sum to 1

    def scores(self, logits: Tensor) -> Tensor:
        """(tokens, experts) -> positive numbers of the same shape."""
        raise NotImplementedError

    def weights(self, scores: Tensor, logits: Tensor) -> Tensor:
        """The weights of the chosen experts, from their scores and logits, (tokens, k) each."""
        return (self.log_scores(logits).softmax(-1) if self.renormalise else scores) * self.scale

    def log_scores(self, logits: Tensor) -> Tensor:
        """The logarithm of the scores of chosen experts, up to a number for each token."""
        raise NotImplementedError

    def choose(self, scores: Tensor, logits: Tensor) -> Tensor:
        """(tokens, experts) each -> (tokens, k): the experts with the highest scores, in descending
        order.
        """
        if self.correction_bias is not None:
            scores = scores + self.correction_bias
        groups, limit = self.grouping.groups, self.grouping.group_limit
        if limit < groups:
            grouped, grouped_logits = (x.unflatten(-1, (groups, -1)) for x in (scores, logits))
            count = 2 if self.grouping.group_score == "top2" else 1
            sums = grouped.topk(count).values.sum(-1)
            order = order_of_sums(grouped_logits.topk(count).values)
            allowed = torch.zeros_like(sums).scatter(-1, self.highest(sums, order, limit), 1.0)
            scores = grouped.masked_fill(allowed[..., None] == 0, -float("inf")).flatten(-2)
        return self.highest(scores, logits, self.top_k)

    def highest(self, scores: Tensor, logits: Tensor, count: int) -> Tensor:
        """Returns the indices of the highest scores, in descending order. `logits` have the same
        order as the scores and break ties that rounding causes.
        """
        return scores.topk(count).indices

    def forward(self, x, tokens):
        """x (b, t, dim) -> routes of b * t * top_k rows, or of all places under a capacity; and the
        report.
        """
        real = tokens.real
        logits = self.logits(x.flatten(0, 1))
        scores = self.scores(logits)
        chosen = self.choose(scores.detach(), logits.detach())
        weight = self.weights(scores.gather(-1, chosen), logits.gather(-1, chosen))
        accepted = None
        if self.capacity is not None and self.training:
            routes, accepted = self._limited(chosen.view(len(x), -1), weight, real)
        else:
            routes = route_all(chosen, weight, self.experts)
        if not self.reports:
            return routes, {}
        report = self._report(logits, scores, chosen, real)
        if accepted is not None:
            report["dropped"] = report["load"].sum() - accepted.sum()
        return routes, report

    def _limited(
        self, chosen: Tensor, weight: Tensor, real: Tensor | None
    ) -> tuple[Routes, Tensor]:
        """Returns the routes of the choices (b, t * k) within the capacity, and which choices those
        are. An expert has `most` places per row; an empty place computes the first token with the
        weight 0.
        """
        b, choices = chosen.shape
        most = min(max(1, math.ceil(self.capacity * choices / self.experts)), choices // self.top_k)
        accepted = torch.ones_like(chosen, dtype=torch.bool)
        limit = chosen.new_full((b, 1), most)
        if real is not None:
            accepted = real.expand(b, -1).repeat_interleave(self.top_k, 1)
            share = accepted.sum(-1, keepdim=True) * (self.capacity / self.experts)
            limit = share.ceil().long().clamp(1, most)
        one_hot = F.one_hot(chosen, self.experts) * accepted[..., None]
        # Earlier choices of the same expert.
        before = (one_hot.cumsum(1) - one_hot).gather(-1, chosen[..., None])[..., 0]
        accepted = accepted & (before < limit)
        rows, places = torch.arange(b, device=chosen.device)[:, None], self.experts * b * most
        place = torch.where(accepted, (chosen * b + rows) * most + before, places).flatten()
        tokens = torch.arange(chosen.numel(), device=chosen.device) // self.top_k
        token = tokens.new_zeros(places + 1).scatter(0, place, tokens)[:-1]
        weight = weight.new_zeros(places + 1).scatter(0, place, weight.flatten())[:-1]
        expert = torch.arange(self.experts, device=chosen.device).repeat_interleave(b * most)
        groups = Groups.of(chosen.new_full((self.experts,), b * most))
        return Routes(groups, expert, token, weight), accepted

    def _report(
        self, logits: Tensor, scores: Tensor, chosen: Tensor, real: Tensor | None
    ) -> Report:
        """The loads of the experts, and the losses of balance and logits."""
        ones = torch.ones_like(chosen[:, 0]) if real is None else real.flatten().to(chosen)
        choices = ones[:, None].expand_as(chosen).flatten()
        load = count_experts(chosen.flatten(), self.experts, choices)
        report, counts = {"load": load}, ones.to(scores)
        if self.balance.factor:
            share = scores if self.scores_sum_to_one else scores / scores.sum(-1, keepdim=True)
            report["loss"] = self.balance(share, counts, load)
        if self.z_loss:
            report["loss"] = report.get("loss", 0) + self._z_loss(logits, counts)
        return report

    @torch.no_grad()
    def after_step(self, load):
        self.balance.after_step(load)
        # A router that is not trained keeps its correction, too.
        if self.correction_bias is not None and self.correction and self.weight.requires_grad:
            load = load.to(torch.promote_types(self.correction_bias.dtype, torch.float32))
            self.correction_bias += self.correction * (load.mean() - load).sign()


@ROUTERS.register(
    "softmax", also_called=("topk", "top_k", "token_choice"), similar=("mixtral", "switch")
)
class SoftmaxRouter(TokenChoice):
    """s = softmax(logits) over all experts (Fedus et al., 2022, arXiv:2101.03961, eq. 1).

    Renormalised, the weights are the softmax over the logits of the chosen experts (Shazeer et al.,
    2017, arXiv:1701.06538, eq. 3 and 5), so top-k before and after the softmax are the same.
    """

    scores_sum_to_one = True

    def scores(self, logits):
        return logits.softmax(-1)

    def log_scores(self, logits):
        return logits


@ROUTERS.register("sigmoid")
class SigmoidRouter(TokenChoice):
    """s = sigmoid(logits): the scores of experts are independent (DeepSeek-AI, 2024,
    arXiv:2412.19437, eq. 12 to 15).
    """

    def scores(self, logits):
        return logits.sigmoid()

    def log_scores(self, logits):
        return F.logsigmoid(logits)  # finite also if sigmoids are 0 in float32

    def highest(self, scores, logits, count):
        # Above 17 a sigmoid is 1 in float32; such ties are broken by the logits.
        order = logits.argsort(dim=-1, descending=True, stable=True)
        return order.gather(
            -1, scores.gather(-1, order).argsort(dim=-1, descending=True, stable=True)[..., :count]
        )


def order_of_sums(logits: Tensor) -> Tensor:
    """Returns a number with the order of the sum of n sigmoids, also for sums that rounding makes
    equal: (..., n) -> (...).

    The sum minus the number of positive logits is d = sum of sigmoid(x) over x < 0 - sum of
    sigmoid(-x) over x >= 0, both computed as logarithms. The result is sign(d) / (1 - log |d|),
    which increases with d.
    """
    negative = logits < 0
    tails = F.logsigmoid(-logits.abs())
    added, subtracted = (
        tails.masked_fill(~side, -math.inf).logsumexp(-1) for side in (negative, ~negative)
    )
    gap = (added - subtracted).nan_to_num(0.0, math.inf, -math.inf)
    size = torch.maximum(added, subtracted) + torch.log1p(-torch.exp(-gap.abs()))  # log |d|
    return gap.sign() / (1 - size)
