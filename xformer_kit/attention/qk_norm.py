"""Norms of queries, keys and values: x (b, h, t, head_dim) -> the same shape.

The norm of queries and keys is an option of an attention: attn.qk_norm=head, or attn.qk_norm=head
attn.qk_norm.after=true.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from xformer_kit.attention.heads import head_channels
from xformer_kit.registry import (
    Fault,
    Registry,
    Unused,
    at_least,
    divisors,
    independent_check,
    nearest_values,
)
from xformer_kit.tensors import SubmoduleInfo, vector
from xformer_kit.tensors.tokens import scaled_to_unit

Norm = Callable[..., nn.Module]  # creates a norm over so many channels, with other options


class EachHead(nn.ModuleList):
    """A norm over head_dim with separate weights for each head (StableLM 2, Cohere Command
    R+).
    """

    parameter_info = {"": SubmoduleInfo(shared_by_heads=False)}

    def forward(self, x: Tensor) -> Tensor:
        """x (b, h, t, d) -> the same shape."""
        return torch.stack([norm(head) for norm, head in zip(self, x.unbind(1), strict=True)], 1)


class OverProjection(nn.Module):
    """One norm over the channels of all heads (OLMo 2: Walsh et al., 2025, arXiv:2501.00656,
    section 3.3.2).
    """

    parameter_info = {
        "norm": SubmoduleInfo({"normalised": "heads*normalised"}, shared_by_heads=False)
    }

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """x (b, h, t, d) -> the same shape."""
        flat = self.norm(x.transpose(1, 2).flatten(2))  # (b, h, t, d) -> (b, t, h * d)
        return flat.unflatten(-1, (x.shape[1], -1)).transpose(1, 2)


class OverGroups(nn.Module):
    """A norm over each of `groups` equal groups of channels, which share its weights."""

    parameter_info = {"norm": SubmoduleInfo({"normalised": "channels_of_group"})}

    def __init__(self, norm: nn.Module, groups: int):
        super().__init__()
        self.norm = norm
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """x (..., channels) -> the same shape."""
        return self.norm(x.unflatten(-1, (self.groups, -1))).flatten(-2)


class Direction(nn.Module):
    """x / |x| over head_dim, or over each of `groups` equal groups of its channels."""

    def __init__(self, groups: int = 1):
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """x (b, h, t, d) -> the same shape."""
        groups = x if self.groups == 1 else x.unflatten(-1, (self.groups, -1))
        return scaled_to_unit(groups).to(x.dtype).reshape(x.shape)


class ScaledDirection(Direction):
    """x / |x| times a learned scale of each head (Henry et al., 2020, arXiv:2010.04245, where all
    heads share one).
    """

    parameter_info = {"weight": vector("heads", shared_by_heads=False)}

    def __init__(self, heads: int, groups: int = 1):
        super().__init__(groups)
        self.weight = nn.Parameter(torch.ones(heads))

    def forward(self, x: Tensor) -> Tensor:
        """x (b, h, t, d) -> the same shape."""
        return super().forward(x) * self.weight[:, None, None]


def make_norm(over: str, norm: Norm, heads: int, head_dim: int, groups: int = 1) -> nn.Module:
    """Returns a norm over the channels of a head, with weights for all heads (`over` is "head") or
    for each head ("each_head"), or over those of all heads ("projection").

    groups: number of equal groups of these channels that are normalised separately.
    """
    create = norm
    if groups > 1:
        create = lambda channels: OverGroups(norm(channels // groups), groups)
    if over == "projection":
        return OverProjection(create(heads * head_dim))
    if over == "each_head":
        return EachHead(create(head_dim) for _ in range(heads))
    return create(head_dim)


class QKNorm:
    """Base of all norms of queries and keys; without norms by default.

    after: whether the norms are applied after rotation.
    """

    def __init__(self, norm: Norm, after: bool = False):
        self.norm = norm
        self.after = after

    def of_query(self, heads: int, head_dim: int) -> nn.Module | None:
        """Returns the norm of queries, or None."""
        return None

    def of_key(self, heads: int, head_dim: int) -> nn.Module | None:
        """Returns the norm of keys, or None."""
        return None

    def scale(self, head_dim: int) -> float:
        """The default factor on products of queries and keys."""
        return head_dim**-0.5


class QKNormArguments:
    """What an attention passes to the constructor of its norms of queries and keys."""

    norm: Norm  # creates a norm of the block's kind over so many channels


QK_NORMS = Registry(
    "qk_norm",
    caller_arguments=QKNormArguments,
    base=QKNorm,
    group="attn.qk_norm",
    switch=("none", "head"),
)


@QK_NORMS.register("none")
class NoQKNorm(QKNorm):
    """Queries and keys as projected."""

    def __init__(self, norm: Norm):
        super().__init__(norm)


class NormedQK(QKNorm):
    """Base of the norms other than `none`.

    unit: whether queries and keys become unit vectors, without the norm of the block.
    over: channels over which they are normalised, as in `make_norm`.
    channels_text: these channels, in messages.
    """

    unit = False
    over = "head"
    channels_text = "the channels of a head"

    def __init__(
        self,
        norm: Norm,
        *,
        after: bool = False,  # whether it is applied after rotation
        groups: int = 1,  # equal groups of the channels, each normalised separately
        bias: bool = True,  # whether they have biases, if the norms of the block have
    ):
        super().__init__(norm if bias else partial(norm, bias=False), after)
        self.groups = groups

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "group", groups=1)
        yield from cls.check_channels(options, context)

    @classmethod
    @independent_check
    def check_channels(cls, options, context):
        """Faults of groups that do not divide the channels of the attention."""
        if (attn := context.outer) is None or options.groups <= 1:
            return
        heads = attn.heads or 0
        head_dim = head_channels(context.dim, heads, attn.head_dim) if heads > 0 else 0
        joint_heads = (attn.kv_heads or heads) if cls.over == "projection" else 1
        channels = head_dim * joint_heads
        if channels > 0 and (channels % options.groups or channels == options.groups):
            yield Fault(
                "groups",
                f"must divide {cls.channels_text} into groups of at least 2",
                got=f"{options.groups} and {channels} channels",
                fix=f"Try {nearest_values(options.groups, divisors(channels)[:-1] or [1])}.",
            )

    @classmethod
    def breaks(cls, options):
        if not options.after or (cls.unit and options.groups == 1):
            return {}
        reason = (
            "after a rotation the weight of a channel acts on another component of the rotated"
            " pair at each position"
        )
        return {"shift": reason}

    @classmethod
    def cannot(cls, options, context):
        position = context.names["position"]
        if options.after and not context.position.isometric:
            yield Fault(
                "after",
                "takes away the lengths of queries and keys, by which position"
                f" '{position}' distinguishes distances",
                fix="Set attn.qk_norm.after=false, or position=rotary.",
            )
        elif not cls.unit and not context.norm.normalises:
            yield Fault(
                "",
                f"takes the norm of {context.path}, and '{context.names['norm']}' does nothing",
                fix="Choose norm=rms or norm=layer there, or attn.qk_norm=false.",
            )
        if not options.bias and (cls.unit or not context.norm.options.get("bias")):
            norm = "qk_norm 'l2'" if cls.unit else f"norm '{context.names['norm']}'"
            rule = f"leaves out the biases of norms, and {norm} has none"
            yield Unused("bias", rule, got="false", fix="Leave it out.")
        if options.after and "rotate" not in context.position.enters:
            yield Unused(
                "after",
                f"puts the norm after a rotation, and position '{position}' does not rotate",
                got="true",
                fix="Set it to false, or choose position=rotary.",
            )

    def of_query(self, heads, head_dim):
        return make_norm(self.over, self.norm, heads, head_dim, self.groups)

    def of_key(self, heads, head_dim):
        return make_norm(self.over, self.norm, heads, head_dim, self.groups)


@QK_NORMS.register("head", similar=("rms", "layer"))
class HeadNorm(NormedQK):
    """A norm over head_dim with weights that the heads share (Dehghani et al., 2023,
    arXiv:2302.05442).
    """


@QK_NORMS.register("each_head", also_called=("per_head",))
class EachHeadNorm(NormedQK):
    """A norm over head_dim with weights of each head (StableLM 2, Cohere Command R+)."""

    over = "each_head"


@QK_NORMS.register("projection")
class ProjectionNorm(NormedQK):
    """A norm over the channels of all heads (OLMo 2: Walsh et al., 2025, arXiv:2501.00656, section
    3.3.2).
    """

    over = "projection"
    channels_text = "the channels of all key heads"


@QK_NORMS.register("l2", also_called=("unit",))
class L2(NormedQK):
    """g q / |q| and k / |k| over head_dim, with a learned g of each head (Henry et al., 2020,
    arXiv:2010.04245, where all heads share one).
    """

    unit = True

    def of_query(self, heads, head_dim):
        return ScaledDirection(heads, self.groups)

    def of_key(self, heads, head_dim):
        return Direction(self.groups)  # one scale per product is enough

    def scale(self, head_dim):
        """sqrt(head_dim) / groups: products of unit vectors of d channels are about d^-0.5, and
        `groups` times as large if each group has length 1.
        """
        return head_dim**0.5 / self.groups


@QK_NORMS.register("key", also_called=("k_norm",))
class KeyNorm(NormedQK):
    """A norm of keys only, over head_dim with weights of each head."""

    over = "each_head"

    def of_query(self, heads, head_dim):
        return nn.Identity()
