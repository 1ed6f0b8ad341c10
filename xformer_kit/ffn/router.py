"""Which experts compute a token, and how much does each count?

A router is a component of ffn=moe: ffn.router.name=sigmoid ffn.router.scale=2.5. No token is
dropped where there is no capacity: an expert computes all tokens that choose it. Padding has no
part in loads and losses.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.ffn.grouped import Groups
from xformer_kit.ffn.routes import ROUTERS, Report, Router, Routes, counted, sent
from xformer_kit.registry import Fault, OptionGroup, Unused, above, apart, at_least, listed


class Learned(Router):
    """Base of those with logits x W^T + b of every token for every expert, (tokens, experts),
    computed in fp32 or more as in Switch (Fedus et al., 2022, arXiv:2101.03961, section 2.4).

    z_loss: factor of the mean over tokens of log(sum_i exp(logit_i))^2, which keeps logits small
    (ST-MoE: Zoph et al., 2022, arXiv:2202.08906, eq. 5).
    """

    def __init__(self, dim: int, experts: int, bias: bool, z_loss: float):
        super().__init__(experts)
        self.z_loss = z_loss
        self.weight = nn.Parameter(torch.empty(experts, dim))
        self.bias = nn.Parameter(torch.zeros(experts)) if bias else None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, z_loss=0)

    def logits(self, x: Tensor) -> Tensor:
        """x (..., dim) -> (..., experts)."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(dtype)
        plain: Any = nullcontext()
        if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
            plain = torch.autocast(x.device.type, enabled=False)
        with plain:
            return F.linear(x.to(dtype), self.weight.to(dtype), bias)

    def _z_loss(self, logits: Tensor, real: Tensor) -> Tensor:
        return self.z_loss * (logits.logsumexp(-1).square() * real).sum() / real.sum().clamp(min=1)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]} -> {self.experts}" + (
            " + bias" if self.bias is not None else ""
        )


@dataclass(frozen=True)
class ExpertGroups(OptionGroup):
    """Experts stand in `groups` groups, of which a token takes the `group_limit` best, by their
    best expert (DeepSeek-V2: arXiv:2405.04434, section 2.2.2) or by the sum of their best two.
    """

    groups: int = 1  # groups of experts
    group_limit: int = 1  # groups that a token's experts may be of
    # a group is as good as its best expert, or as its best two
    group_score: Literal["max", "top2"] = "max"


ONE_GROUP = ExpertGroups()


class TokenChoice(Learned):
    """Each token takes the `top_k` experts with the highest score s, and weighs them by it.

    renormalise: weights are divided by their sum.
    balance: factor of experts * sum_i f_i P_i, with f_i the share of choices that fall on expert i
    and P_i its mean share of scores, 1 where all are even (Switch, eq. 4; for several experts of a
    token DeepSeek-V2, section 2.2.3). correction: no loss, but a bias that is added to scores to
    choose, and not to weigh; behind every step it rises by so much for experts with less than the
    mean load and falls for those with more (Wang et al., 2024, arXiv:2408.15664, algorithm 1).
    capacity c: in training an expert computes at most ceil(c * top_k * tokens / experts) tokens of
    a text, those that come first, and nothing of the others (Switch, eq. 3; GShard: Lepikhin et
    al., 2020, arXiv:2006.16668, section 2.2, algorithm 1); what is left of their weights is not
    renormalised. A text that is judged or generated is computed whole. So experts compute as many
    rows each, in shapes that are known ahead.
    """

    # Papers: capacity is of a batch, and first choices of all tokens go before second ones.   Here:
    # of each row, token by token, so that no token depends on other rows or on those behind it.

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
        balance: float = 0.01,  # factor of the loss for even loads
        correction: (
            float | None
        ) = None,  # what a step moves the bias that evens loads; 0 keeps it; null is none
        capacity: (
            float | None
        ) = None,  # in training, what an expert computes at most, in even loads; null: all
        z_loss: float = 0.0,  # factor of the loss for small logits
    ):
        super().__init__(dim, experts, bias, z_loss)
        self.capacity = capacity
        self.top_k = top_k
        self.renormalise = renormalise
        self.scale = scale
        self.grouping = grouping
        self.balance = balance
        self.correction = correction
        self.register_buffer(
            "correction_bias", None if correction is None else torch.zeros(experts)
        )
        if self.idle:
            self.no_gradient = ("weight", "bias")

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
                "in training, an expert that an earlier text of a row has filled takes none of the"
                " next text"
            )
        }

    @classmethod
    @apart
    def check_groups(cls, options, context):
        """Faults of groups that do not fit the experts of the layer."""
        if (moe := context.outer) is None or min(moe.experts, moe.top_k) < 1:
            return
        experts, top_k = moe.experts, moe.top_k
        if top_k > experts:
            return  # a fault of the layer
        groups, limit = options.groups, options.group_limit
        if experts % groups:
            ways = listed(n for n in range(1, experts + 1) if experts % n == 0)
            yield Fault(
                "groups",
                "must divide ffn.experts",
                got=f"{groups} and {experts}",
                fix=f"Try {ways}.",
            )
        elif limit > groups:
            yield Fault(
                "group_limit",
                "must be at most ffn.router.groups",
                got=f"{limit} and {groups}",
                fix=f"Try {groups}.",
            )
        elif options.group_score == "top2" and experts == groups:
            yield Fault(
                "group_score",
                f"'top2' takes two experts of a group, and {groups} groups of {experts} have one",
                fix="Try max.",
            )
        elif top_k > limit * experts // groups:
            yield Fault(
                "group_limit",
                f"{limit} of {groups} groups hold {limit * experts // groups} experts, and"
                f" ffn.top_k is {top_k}",
                fix="Let a token choose from more groups, or fewer experts.",
            )

    @classmethod
    def cannot(cls, options, context):
        experts, top_k = context.outer.experts, context.outer.top_k
        groups, limit, score = options.groups, options.group_limit, options.group_score
        if limit == groups:
            why = "a token may choose from all groups, as ffn.router.group_limit is their number"
            if groups > 1:
                yield Unused("groups", why, got=groups, fix="Set both to 1.")
            if score != "max":
                yield Unused("group_score", why, got=f"'{score}'", fix="Leave it max.")
        elif score == "max" and top_k <= limit:
            why = (
                f"the best ffn.top_k={top_k} experts are of the best ffn.router.group_limit={limit}"
                " groups, whose best they are"
            )
            yield Unused(
                "groups",
                why,
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
                got=f"{options.capacity:g}",
                fix=f"Set it to null, or try {min(1.25, 0.8 * experts / top_k):g}.",
            )

    @property
    def idle(self) -> bool:
        """Whether the loss does not depend on the logits: one expert with the weight 1."""
        free = not self.renormalise and not (self.experts == 1 and self.competes)
        return (
            self.top_k == 1
            and not free
            and not self.z_loss
            and (not self.balance or self.experts == 1)
        )

    competes = False  # whether the scores of all experts sum to 1

    def scores(self, logits: Tensor) -> Tensor:
        """(tokens, experts) -> positive numbers of the same shape."""
        raise NotImplementedError

    def weights(self, scores: Tensor, logits: Tensor) -> Tensor:
        """Of the experts that were chosen, (tokens, k) each."""
        if self.renormalise:
            scores = scores / (scores.sum(-1, keepdim=True) + torch.finfo(scores.dtype).tiny)
        return scores * self.scale

    def choose(self, scores: Tensor, logits: Tensor) -> Tensor:
        """(tokens, experts) each -> (tokens, k): the best, in falling order."""
        if self.correction_bias is not None:
            scores = scores + self.correction_bias
        groups, limit = self.grouping.groups, self.grouping.group_limit
        if limit < groups:
            grouped, apart = (
                component.unflatten(-1, (groups, -1)) for component in (scores, logits)
            )
            count = 2 if self.grouping.group_score == "top2" else 1
            sums = grouped.topk(count).values.sum(-1)
            best = self.best(sums, beyond(apart.topk(count).values), limit)
            kept = torch.zeros_like(sums).scatter(-1, best, 1.0)
            scores = grouped.masked_fill(kept[..., None] == 0, -float("inf")).flatten(-2)
        return self.best(scores, logits, self.top_k)

    def best(self, scores: Tensor, logits: Tensor, count: int) -> Tensor:
        """Where the highest scores stand, in falling order; `logits` are larger where scores are,
        and are not rounded to 1.
        """
        return scores.topk(count).indices

    def forward(self, x, tokens):
        real = tokens.real
        logits = self.logits(x.flatten(0, 1))
        scores = self.scores(logits)
        chosen = self.choose(scores.detach(), logits.detach())
        weight = self.weights(scores.gather(-1, chosen), logits.gather(-1, chosen))
        if self.capacity is not None and self.training:
            routes, kept = self._limited(chosen.view(len(x), -1), weight, real)
            report = self._report(logits, scores, chosen, real) if self.reports else {}
            return routes, report | {"dropped": report["load"].sum() - kept.sum()} if report else {}
        routes = sent(chosen, weight, self.experts)
        return routes, self._report(logits, scores, chosen, real) if self.reports else {}

    def _limited(
        self, chosen: Tensor, weight: Tensor, real: Tensor | None
    ) -> tuple[Routes, Tensor]:
        """The routes of the choices (b, t * k) for which there is room, and which those are. An
        expert has `most` places for each row; an empty one computes the first token, with the
        weight 0.
        """
        b, choices = chosen.shape
        most = min(max(1, math.ceil(self.capacity * choices / self.experts)), choices // self.top_k)
        kept = torch.ones_like(chosen, dtype=torch.bool)
        takes = chosen.new_full((b, 1), most)
        if real is not None:
            kept = real.expand(b, -1).repeat_interleave(self.top_k, 1)
            share = kept.sum(-1, keepdim=True) * (self.capacity / self.experts)
            takes = share.ceil().long().clamp(1, most)
        one = F.one_hot(chosen, self.experts) * kept[..., None]
        before = (one.cumsum(1) - one).gather(-1, chosen[..., None])[
            ..., 0
        ]  # how many have chosen that expert
        kept = kept & (before < takes)
        rows, places = torch.arange(b, device=chosen.device)[:, None], self.experts * b * most
        place = torch.where(kept, (chosen * b + rows) * most + before, places).flatten()
        tokens = torch.arange(chosen.numel(), device=chosen.device) // self.top_k
        token = tokens.new_zeros(places + 1).scatter(0, place, tokens)[:-1]
        weight = weight.new_zeros(places + 1).scatter(0, place, weight.flatten())[:-1]
        expert = torch.arange(self.experts, device=chosen.device).repeat_interleave(b * most)
        return (
            Routes(Groups.of(chosen.new_full((self.experts,), b * most)), expert, token, weight),
            kept,
        )

    def _report(
        self, logits: Tensor, scores: Tensor, chosen: Tensor, real: Tensor | None
    ) -> Report:
        ones = torch.ones_like(chosen[:, 0]) if real is None else real.flatten().to(chosen)
        load = counted(chosen.flatten(), self.experts, ones[:, None].expand_as(chosen).flatten())
        report, counts = {"load": load}, ones.to(scores)
        if self.balance:
            share = scores if self.competes else scores / scores.sum(-1, keepdim=True)
            mean = (share * counts[:, None]).sum(0) / counts.sum().clamp(min=1)
            fair = (
                load / load.sum().clamp(min=1) * self.experts
            )  # 1 for each expert where all are even
            report["loss"] = self.balance * (fair.to(mean) * mean).sum()
        if self.z_loss:
            report["loss"] = report.get("loss", 0) + self._z_loss(logits, counts)
        return report

    @torch.no_grad()
    def after_step(self, load):
        if self.correction_bias is not None and self.correction:
            load = load.to(torch.promote_types(self.correction_bias.dtype, torch.float32))
            self.correction_bias += self.correction * (load.mean() - load).sign()


@ROUTERS.register("softmax", also_called=("mixtral", "switch", "topk", "top_k", "token_choice"))
class Softmax(TokenChoice):
    """s = softmax(logits) over all experts (Fedus et al., 2022, arXiv:2101.03961, eq. 1).

    Renormalised, that is the softmax over the logits of the chosen alone (Shazeer et al., 2017,
    arXiv:1701.06538, eq. 3 and 5), so top-k before the softmax and behind it are one choice.
    """

    competes = True

    def scores(self, logits):
        return logits.softmax(-1)

    def weights(self, scores, logits):
        return logits.softmax(-1) * self.scale if self.renormalise else scores * self.scale


@ROUTERS.register("sigmoid", also_called=("deepseek_v3",))
class Sigmoid(TokenChoice):
    """s = sigmoid(logits): experts do not compete before they are chosen (DeepSeek-AI, 2024,
    arXiv:2412.19437, eq. 12 to 15).
    """

    def scores(self, logits):
        return logits.sigmoid()

    def weights(self, scores, logits):
        # s_i / sum_j s_j, also where sigmoids are 0 in float32.
        return (
            F.logsigmoid(logits).softmax(-1) * self.scale
            if self.renormalise
            else scores * self.scale
        )

    def best(self, scores, logits, count):
        # Beyond 17 a sigmoid is 1 in float32. What rounding makes equal is told apart by what
        # sigmoids lack to 1.
        order = logits.argsort(dim=-1, descending=True, stable=True)
        return order.gather(
            -1, scores.gather(-1, order).argsort(dim=-1, descending=True, stable=True)[..., :count]
        )


def beyond(logits: Tensor) -> Tensor:
    """(..., n) -> (...): larger where the sum of n sigmoids is, of sums that rounding makes equal.

    What the sum has beyond the number of positive logits is d = sum of sigmoid(x) over x < 0 - sum
    of sigmoid(-x) over x >= 0, both known by their logarithms, however small. It is the sign of d /
    (1 - log |d|), which grows with d.
    """
    negative = logits < 0
    tails = F.logsigmoid(-logits.abs())
    has, lacks = (
        tails.masked_fill(~side, -math.inf).logsumexp(-1) for side in (negative, ~negative)
    )
    gap = (has - lacks).nan_to_num(0.0, math.inf, -math.inf)
    size = torch.maximum(has, lacks) + torch.log1p(-torch.exp(-gap.abs()))  # log |d|
    return gap.sign() / (1 - size)
