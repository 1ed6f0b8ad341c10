"""A block: sublayers, and the placements that carry the residual stream around them."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import Attention
from xformer_kit.attention.base import Cache
from xformer_kit.attention.token_shift import Before, TokenShift
from xformer_kit.ffn import FFN
from xformer_kit.ffn.deep_embed import DeepEmbed
from xformer_kit.model.tokens import UNKNOWN, Tokens, View
from xformer_kit.placement import Placement, State, Sublayer

Report = dict[str, Tensor]
Caches = Mapping[str, Cache]
Memo = dict[str, Tensor]
READ = "{}.position"  # name of the cache of what a position reads beside an attention


class Block(nn.Module):
    """Groups of sublayers, one placement around each; the sublayers of a group run in parallel on
    one input.

    It receives its parts built and knows none of their names. `looks[name]` is the index, among the
    views of the stack, of the one that an attention looks through; `crosses` are the attentions
    that look at another stack.
    """

    def __init__(
        self,
        sublayers: Mapping[str, nn.Module],
        groups: Sequence[Sequence[str]],
        placements: Sequence[Placement],
        looks: Mapping[str, int],
        crosses: Sequence[str] = (),
        dropout: float = 0.0,
        multipliers: Mapping[str, float] | None = None,
        called: int = 1,
        shift: TokenShift | None = None,
        deep: Mapping[str, DeepEmbed] | None = None,
    ):
        super().__init__()
        self.called = called  # times in a forward pass: layers that share it
        self.shift = shift  # of what each sublayer reads
        self.deep = nn.ModuleDict(deep)  # vectors of tokens, for networks by name
        self.multipliers = dict(
            multipliers or {}
        )  # of what sublayers add to the residual stream, by name
        for name, module in sublayers.items():
            self.add_module(name, module)
        self.groups = tuple(map(tuple, groups))
        self.looks = dict(looks)
        self.crosses = crosses
        self.dropout = dropout
        self.placement = nn.ModuleDict(
            dict(zip(map("_".join, self.groups), placements, strict=True))
        )

    def forward(
        self,
        state: State,
        views: Sequence[View],
        source: Tensor | None = None,
        tokens: Tokens = UNKNOWN,
        caches: Caches | None = None,
        memo: Memo | None = None,
        keep: Tensor | None = None,
        before: Before | None = None,
    ) -> tuple[State, Report, Memo]:
        """The residual stream behind the block, the reports of its sublayers (`loss` summed, the
        rest by name), and the memo with what they added to it. `keep`: the probability, a number,
        with which a sublayer is not skipped for a row. `views`: one for each attention, in the
        order of `looks`. `before`: where earlier tokens stand, for `shift`.

        The memo comes in and goes out, and is never changed in place: recomputing a block reads
        what it read before, and FSDP, which under mixed precision gives a block copies of its
        arguments, loses nothing that crosses layers.
        """
        report: Report = {}
        memo = dict(memo or {})
        seen = {
            name: view._replace(memo=memo) for name, view in zip(self.looks, views, strict=True)
        }
        for names, placement in zip(self.groups, self.placement.values(), strict=True):
            sublayers = [
                self._sublayer(name, seen, source, tokens, caches, report) for name in names
            ]
            if self.deep:
                sublayers = [
                    self._deep(name, f, tokens.ids)
                    for name, f in zip(names, sublayers, strict=True)
                ]
            if self.shift is not None:
                sublayers = [
                    self._shifted(name, f, before, caches)
                    for name, f in zip(names, sublayers, strict=True)
                ]
            state = placement(state, sublayers, partial(self._total, keep, names), tokens)
        return state, report, memo

    def _sublayer(self, name, views, source, tokens, caches, report) -> Sublayer:
        module = getattr(self, name)
        if name in self.looks:
            view, there = views[name], caches or {}
            given = {"source": source if name in self.crosses else None, "cache": there.get(name)}
            if view.reads:
                return partial(_read, module, view, there.get(READ.format(name)), given)
            return partial(module, view=view, **given)
        return partial(_reporting, module, name, tokens, report)

    def _deep(self, name: str, sublayer: Sublayer, ids: Tensor | None) -> Sublayer:
        return (lambda x: self.deep[name](sublayer(x), ids)) if name in self.deep else sublayer

    def _shifted(
        self, name: str, sublayer: Sublayer, before: Before | None, caches: Caches | None
    ) -> Sublayer:
        cache = None if caches is None else caches[f"{name}_shift"]
        return lambda x: sublayer(self.shift(x, before, cache))  # type: ignore[misc]

    def shifts(self, rows: int, length: int) -> dict[str, Cache]:
        """Empty caches of what `shift` needs of earlier tokens, one for each sublayer."""
        if self.shift is None:
            return {}
        # An average without norms has no parameter; its buffer moves and is cast with the model, as
        # one would.
        like = next(x for x in chain(self.parameters(), self.buffers()) if x.is_floating_point())
        return {
            f"{name}_shift": self.shift.cache(rows, length, like)
            for names in self.groups
            for name in names
        }

    def _total(
        self, keep: Tensor | None, names: Sequence[str], outputs: Sequence[Tensor]
    ) -> Tensor:
        """What is added to the residual stream."""
        factors = [self.multipliers.get(name, 1.0) for name in names]
        first, *rest = (
            self._added(keep, h, factor) for h, factor in zip(outputs, factors, strict=True)
        )
        for other in rest:
            first = first + other
        return first

    def _added(self, keep: Tensor | None, h: Tensor, factor: float) -> Tensor:
        if self.dropout:
            h = F.dropout(h, self.dropout, self.training)
        if keep is not None:
            keep = keep.to(h.dtype)
            h = (
                h * torch.bernoulli(keep.expand(h.shape[0], 1, 1)) / keep
            )  # (b, 1, 1): a row is skipped as a whole
        return h if factor == 1.0 else h * factor

    def attentions(self) -> dict[str, Attention]:
        return {name: getattr(self, name) for name in self.looks}

    def gains(self, prefix: str) -> dict[str, float]:
        """What the placements ask of the initial scale, by parameter name."""
        return {
            f"{prefix}.{name}.{full}": gain
            for names, placement in zip(self.groups, self.placement.values(), strict=True)
            for matrix, gain in placement.gains().items()  # type: ignore[operator]
            for name in names
            for full, _ in getattr(self, name).named_parameters()
            if f".{full}".endswith(f".{matrix}.weight")  # also of an expert's
        }


def _read(
    attn: nn.Module, view: View, kept: Cache | None, given: Mapping[str, Any], x: Tensor
) -> Tensor:
    """An attention behind its position, which reads the same."""
    return attn(x, view=view._replace(position=view.position.read(x, view, kept)), **given)


def _reporting(ffn: FFN, name: str, tokens: Tokens, report: Report, x: Tensor) -> Tensor:
    x, said = ffn(x, tokens)
    for key, value in said.items():
        where = "loss" if key == "loss" else f"{name}.{key}"
        report[where] = report[where] + value if where in report else value
    return x
