"""Mixes of all that groups of sublayers gave before, in the place of their plain sum."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.placement.base import PLACEMENTS, MakeNorm, Norms, Placement, State
from xformer_kit.placement.streams import blend

EPS = 1e-6  # of the norm that makes keys of outputs


BREAKS = {
    "one graph": (
        "a layer reads all streams so far, one more with each group of sublayers; one number of"
        " them for all layers would be a copy of them all in each"
    )
}


class Earlier(Placement):
    """Base of those whose state grows: the stream x, and behind it v_0, v_1, ..., where v_0 is what
    entered the stack.

    told: what the v are, in words.
    """

    grows = True
    breaks = BREAKS
    told: str

    @classmethod
    def carries(cls, options):
        return f"all earlier {cls.told}"

    @staticmethod
    def start(x, states):
        return x, x.clone()

    @staticmethod
    def joined(state, earlier, join):
        """A skip enters the stream alone: what was given before stays what it was."""
        return join(state[0], earlier[0]), *state[1:]


def attended(query: Tensor, given: Sequence[Tensor]) -> Tensor:
    """sum_i softmax_i(query^T v_i / rms(v_i)) v_i, for v_i (b, t, dim) and a query (dim,)."""
    scores = [(F.rms_norm(v, query.shape, eps=EPS) * query).sum(-1, keepdim=True) for v in given]
    return blend(torch.stack(scores).softmax(0).unbind(), given)


@PLACEMENTS.register(
    "aggregated",
    also_called=("attention_residuals", "attn_res", "attnres", "attn_aggregated_residuals"),
)
class Aggregated(Earlier):
    """v_k = f(norm(x)) and x <- sum_i a_i v_i with a = softmax_i(w^T v_i / rms(v_i)): attention
    over all outputs so far in the place of their sum (Attention Residuals: Kimi Team, 2026,
    arXiv:2603.15031, its full form).

    v_0 is what entered the stack; i runs over 0, ..., k. w is learned, one for each group of
    sublayers, and starts at 0: all outputs count alike. Also the stack's output is such a mix. The
    keys' norm has no weight, for w would take it up. x-transformers' has its query from the newest
    stream, attends to streams and leaves their sum as it is.
    """

    told = "outputs"

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        parallel: int,
        *,
        # whether parallel sublayers read one norm or one each; they are one output
        shared: bool = True,
    ):
        super().__init__()
        self.norm = Norms(norm, parallel, shared)
        self.query = nn.Parameter(torch.zeros(dim))

    def forward(self, state, sublayers, total, tokens):
        x, *given = state
        given.append(total(self.norm.outputs(x, sublayers)))
        return attended(self.query, given), *given


@PLACEMENTS.register("dense_former", also_called=("denseformer", "dwa", "depth_weighted_average"))
class DenseFormer(Earlier):
    """v_k = x + f(norm(x)) and x <- sum_i a_i v_i with learned numbers a: a depth-weighted average
    (Pagliardini et al., 2024, arXiv:2402.02622, section 3).

    v_0 is what entered the stack; i runs over 0, ..., k. a starts at 1 for the newest and at 0 for
    the others: a model starts as one with placement=pre. Here each group of sublayers has its
    average, in the paper each block. Layers that share a block have its numbers, counted from the
    newest.
    """

    told = "averages"

    def __init__(
        self,
        norm: MakeNorm,
        latest: int,
        parallel: int,
        *,
        shared: bool = True,  # whether parallel sublayers read one norm or one each
    ):
        super().__init__()
        self.norm = Norms(norm, parallel, shared)
        self.average = nn.Parameter(F.pad(torch.ones(1), (0, latest + 1)))  # the newest first

    def forward(self, state, sublayers, total, tokens):
        x, *given = state
        given.append(x + total(self.norm.outputs(x, sublayers)))
        newest = given[::-1]
        return blend(self.average[: len(newest), None], newest), *given


@PLACEMENTS.register(
    "lime", also_called=("integrate_layers", "layer_integrated_memory", "dynamic_lime")
)
class LIMe(Placement):
    """x + f(norm(sum_i a_i v_i)) with a = softmax(norm(x) W + b): a sublayer reads a mix of all
    streams so far (LIMe: Gerasimov et al., 2025, arXiv:2502.09245).

    v_i is the stream in front of each group of sublayers, x the newest of them, which stays plain.
    Here the mix is of all that a sublayer reads, as in x-transformers; in the paper it is of the
    keys and values of each head, with weights that are the same for all tokens. Layers that share a
    block have its weights, counted from the newest.
    """

    grows = True
    breaks = BREAKS

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        latest: int,
        parallel: int,
        *,
        # whether parallel sublayers read one norm or one each; they read one mix
        shared: bool = True,
    ):
        super().__init__()
        self.norm = Norms(norm, parallel, shared)
        self.before = norm() if latest else None  # the first has nothing to mix
        self.route = nn.Linear(dim, latest + 1) if latest else None  # the newest first

    @classmethod
    def carries(cls, options: Any) -> str:
        return "all earlier streams"

    def forward(self, state, sublayers, total, tokens):
        x = state[-1]
        return *state, x + total(self.norm.outputs(self._mixed(state), sublayers))

    def _mixed(self, state: State) -> Tensor:
        if self.route is None or self.before is None:
            return state[-1]
        newest = state[::-1]
        weights = self.route(self.before(newest[0]))[..., : len(newest)].softmax(-1)
        return blend(weights.movedim(-1, 0)[..., None], newest)

    @staticmethod
    def joined(state, earlier, join):
        return *state[:-1], join(state[-1], earlier[-1])

    @staticmethod
    def finish(state, norm):
        return norm(state[-1])
