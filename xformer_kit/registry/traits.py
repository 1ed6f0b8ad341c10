"""Traits: properties of a component with its options, for the checks of other components."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AttentionTraits:
    """Properties of an attention with its options, for positions, kernels and checks."""

    heads: int = 1  # query heads
    kv_heads: int = 1  # key heads that a position rotates, and value heads
    head_dim: int = 0  # channels of a head that a position rotates
    v_head_dim: int = 0  # channels of a head's values
    values: bool = False  # whether extras can change its values
    width: int = 0  # channels of queries and keys in the kernel's dot products
    computes: str = "scores"  # what its kernel must compute: scores, recurrence or mixture
    projects: bool = False  # whether it has `queries_of` and `keys_of`
    maskable: bool = True  # whether a mask can hide some of its tokens from others
    score: str | None = None  # short description of its score function; None: softmax
    pointwise: bool = True  # whether the score function is element-wise
    signed: bool = False  # whether weights may be negative
    head_dim_option: str = "head_dim"  # the option that sets head_dim
    # Tensors that it takes from an earlier layer and passes to later ones: name -> a value, such as
    # a shape, that is equal in the layers that share the tensor.
    cross_layer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MaskTraits:
    """Properties of a mask, for kernels and checks."""

    band: tuple[float, float] | None = None  # (left, right) if it is exactly a band of distances
    sees_future: bool = True  # whether a query may see a later key outside of a prefix
    sees_prefix: bool = False  # whether a query may see later keys of a prefix


@dataclass(frozen=True)
class PositionTraits:
    """Properties of a position, for attentions, kernels and checks; see Position."""

    enters: tuple[str, ...] = ()  # of embed, rotate, bias, scores
    isometric: bool = True  # whether rotation keeps the lengths of queries and keys
    learned: bool = False  # whether its bias has weights
    # whether `scores` depend on the channels of queries and keys; else they are q k^T * scale and
    # what `read` returns
    channels: bool = True
    bounded: bool = False  # whether it supports at most model.max_len tokens


@dataclass(frozen=True)
class NormTraits:
    """Properties of a norm, for checks."""

    normalises: bool = True  # False for an identity
    options: Mapping[str, Any] = field(default_factory=dict)  # its options: name -> value
