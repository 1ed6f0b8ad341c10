"""Norms: `norm(dim) -> Module` over the last axis."""

from xformer_kit.norm.norms import NORMS, PointwiseNorm, RMSNorm
