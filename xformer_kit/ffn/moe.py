"""Mixture of experts: each token is computed by a few of many networks."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from xformer_kit.ffn.dense import FFN, FFNS, GLU, GLU_NAMES, MLP, NO_CONTEXT, Dense, check_width
from xformer_kit.ffn.grouped import grouped_linear
from xformer_kit.ffn.router import SoftmaxRouter
from xformer_kit.ffn.routes import Router, Routes
from xformer_kit.registry import Fault, Registry, at_least, at_most
from xformer_kit.tensors import SubmoduleInfo, hidden
from xformer_kit.tensors.cache import JointCache
from xformer_kit.tensors.tokens import with_fields


class ExpertArguments:
    """What a mixture passes to the constructor of its experts, one network for all of them, and of
    its shared experts.
    """

    dim: int  # channels of the residual stream
    norm: Callable[[int], nn.Module]  # creates a norm of the block's kind over so many channels
    linear: Callable[[int, int, bool], nn.Module]  # creates a map (in, out, bias) of each expert
    # options of the mixture, for `hidden_width`
    width: int | None  # channels of an expert; None: expand x dim
    expand: float | None  # multiple of dim; None: the expert's default
    multiple_of: int | None  # channels, to a multiple of which the expanded width is rounded up


EXPERTS = Registry("expert", caller_arguments=ExpertArguments, base=Dense, group="ffn.expert")
EXPERTS.register("glu", also_called=GLU_NAMES, similar=("gated",))(GLU)
EXPERTS.register("mlp", also_called=("feed_forward", "dense"))(MLP)


class ExpertLinear(nn.Module):
    """A linear map for each expert: x W_e^T + b_e. weight (experts, out, in), bias (experts,
    out).
    """

    first_axes = ("experts",)  # before those of a linear map for all tokens

    def __init__(self, experts: int, into: int, out: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, out, into))
        self.bias = nn.Parameter(torch.zeros(experts, out)) if bias else None

    def forward(self, rows: Tensor, routes: Routes) -> Tensor:
        """(rows, in) -> (rows, out), sorted by expert."""
        return self._add_bias(expert_products(rows, self.weight, routes), routes)

    def _add_bias(self, rows: Tensor, routes: Routes) -> Tensor:
        return rows if self.bias is None else rows + self.bias.to(rows.dtype)[routes.expert]

    def extra_repr(self) -> str:
        experts, out, into = self.weight.shape
        return f"{experts} of {into} -> {out}, bias={self.bias is not None}"


def expert_products(rows: Tensor, weight: Tensor, routes: Routes) -> Tensor:
    """x W_e^T for rows (rows, in), sorted by expert, and weight (experts, out, in): (rows, out)."""
    device = rows.device.type
    # Autocast does not cover grouped products.
    if device != "meta" and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        rows, weight = rows.to(dtype), weight.to(dtype)
    return grouped_linear(rows, weight, routes.groups)


@FFNS.register(
    "moe",
    also_called=("mixture_of_experts", "experts"),
    similar=("switch",),
)
class MixtureOfExperts(FFN):
    """sum_i g_i expert_i(x) over the few experts i that the router selects for x, with weights g
    (Shazeer et al., 2017, arXiv:1701.06538, eq. 1).

    An expert is a network like `mlp` or `glu`; with `inner_norm` all experts share the norm's
    weights. shared: one more network for all tokens, `shared` times as wide as an expert
    (DeepSeekMoE: Dai et al., 2024, arXiv:2401.06066, section 3.2), with `shared_gate` multiplied by
    sigmoid(x w) (Qwen1.5-MoE, 2024). Tokens are sorted by expert, and each expert computes all of
    its tokens in one product; no token is dropped unless the router has a `capacity`. Layers
    without experts are variants: model.decoder.first=[dense]
    model.decoder.variants.dense.ffn={name: glu, width: 512}.

    The report holds `load`, (experts,): the number of tokens assigned to each expert, without
    padding; and with a capacity `dropped`: how many of them were dropped.
    """

    breaks = {
        "kernels in bf16": (
            "the choice of experts is not continuous, and rounding to 8 bits can change the order"
            " of two close scores"
        )
    }

    parameter_info = {
        "shared": SubmoduleInfo({"width": "shared*width"}),
        "shared_gate": hidden("1", "dim"),
    }

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module] = nn.RMSNorm,
        *,
        experts: int = 8,  # number of experts
        top_k: int = 2,  # experts per token; the average, if experts choose tokens
        width: int | None = None,  # channels of an expert; null is expand x dim
        expand: float | None = None,  # multiple of dim; null is the expert's own
        # channels; the expanded width is rounded up to it; null is the expert's own
        multiple_of: int | None = None,
        expert: Callable[..., Dense] = GLU,  # the kind of network
        router: Callable[..., Router] = SoftmaxRouter,  # selects the experts of each token
        # number of experts that compute every token, as one network of that many times the width
        shared: int = 0,
        shared_gate: bool = False,  # whether the output of the shared experts is gated by the input
    ):
        super().__init__()
        sizes = {"width": width, "expand": expand, "multiple_of": multiple_of}
        self.top_k = top_k
        self.router = router(dim=dim, experts=experts, top_k=top_k)
        self.experts = expert(dim=dim, norm=norm, linear=partial(ExpertLinear, experts), **sizes)
        self.shared = None
        if shared:
            sizes = {"width": shared * self.experts.width, "expand": None, "multiple_of": None}
            self.shared = expert(dim=dim, norm=norm, linear=nn.Linear, **sizes)
        self.shared_gate = nn.Linear(dim, 1, bias=False) if shared_gate else None

    @classmethod
    def check(cls, options, context):
        yield from check_width(options, context)
        yield from at_least(options, "expert", experts=1, top_k=1, shared=0)
        if options.experts > 0:
            yield from at_most(options, "experts", top_k=options.experts)
        if options.shared_gate and not options.shared:
            yield Fault(
                "shared_gate",
                "gates the output of shared experts, and there are none",
                got="true",
                fix="Set ffn.shared, or false.",
            )

    @classmethod
    def builds_block_norm(cls, options):
        """Whether its experts have a norm of the kind of their block."""
        return options["expert"].component.builds_block_norm(options["expert"])

    def forward(self, x, context=NO_CONTEXT):
        """x (b, t, dim) -> the output (b, t, dim), and the report of the router."""
        routes, report = self.router(x, context.tokens)
        parts = (None, None) if context.cache is None else context.cache.parts
        of_experts, of_shared = (with_fields(context, cache=part) for part in parts)
        flat = self.experts.mix_tokens(x, of_experts).flatten(0, 1)
        rows = flat[routes.token]
        projected = [getattr(self.experts, name)(rows, routes) for name in self.experts.fusible]
        rows = self.experts.down(self.experts.hidden_channels(*projected), routes)
        out = routes.combine(rows, len(flat)).view_as(x)
        if self.shared is None:
            return out, report
        shared, _ = self.shared(x, of_shared)
        if self.shared_gate is not None:
            shared = self.shared_gate(x).sigmoid() * shared
        return out + shared, report

    def cache(self, rows, length):
        networks = (self.experts, self.shared)
        caches = [None if n is None else n.cache(rows, length) for n in networks]
        return JointCache(*caches) if any(caches) else None

    def after_step(self, report):
        if "load" in report:
            self.router.after_step(report["load"])

    def figures(self, report: Mapping[str, Tensor]) -> dict[str, float]:
        """Returns figures of the loads of a step: each expert's share, the violation (largest load
        / mean load - 1, MaxVio of Wang et al., 2024, section 4.1), and the share of dropped tokens.
        """
        load = report["load"].double()
        total = load.sum().clamp(min=1)
        shares = (load / total).tolist()
        figures = {"load_violation": max(shares) * len(shares) - 1}
        if "dropped" in report:
            figures["dropped"] = float(report["dropped"] / total)
        return figures | {f"load.{expert}": share for expert, share in enumerate(shares)}

    def unused(self) -> int:
        """The number of its parameters that a token does not use, on average."""
        experts = self.router.experts
        maps = [m for m in self.experts.modules() if isinstance(m, ExpertLinear)]
        parameters = sum(p.numel() for m in maps for p in m.parameters()) // experts
        return parameters * (experts - self.top_k)
