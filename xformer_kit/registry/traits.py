"""Traits: what a component declares about itself with its options, for others to check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AttentionTraits:
    """What positions, kernels and checks need to know of an attention with its options."""

    heads: int = 1  # query heads
    kv_heads: int = 1  # key heads that a position rotates, and value heads
    head_dim: int = 0  # channels of a head that a position rotates
    v_head_dim: int = 0  # channels of a head's values
    values: bool = False  # whether extras can change its values
    width: int = 0  # channels of queries and keys of which a kernel takes products
    computes: str = "scores"  # what it needs of its kernel: scores, recurrence or mixture
    projects: bool = False  # whether it has `queries_of` and `keys_of`
    maskable: bool = True  # whether a mask can hide some of its tokens from others
    score: str | None = None  # what its score is, in a few words; None: softmax
    pointwise: bool = True  # whether the score changes scores one by one
    signed: bool = False  # whether weights may be negative
    head_dim_option: str = "head_dim"  # the option that sets head_dim
    # What it gives to later layers: name -> (what the two must have in common, the first layer
    # that takes it).
    across: Mapping[str, tuple[Any, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class MaskTraits:
    """What kernels and checks need to know of a mask."""

    band: tuple[float, float] | None = None  # see Mask.band
    sees_future: bool = True  # see Mask.sees_future
    sees_prefix: bool = False  # see Mask.sees_prefix


@dataclass(frozen=True)
class PositionTraits:
    """What attentions, kernels and checks need to know of a position; see Position."""

    enters: tuple[str, ...] = ()  # of embed, rotate, bias, scores
    isometric: bool = True  # whether rotation keeps the lengths of queries and keys
    learned: bool = False
    # whether `scores` depend on the channels of queries and keys; else they are q k^T * scale and
    # what `read` returns
    channels: bool = True
    bounded: bool = False


@dataclass(frozen=True)
class NormTraits:
    """What checks need to know of a norm."""

    normalises: bool = True  # False for an identity
