"""What does a token do alone? forward(x, real) -> (x, report), over (b, t, dim)."""

from xformer_kit.ffn.dense import FFN, FFNS, GLU, MLP

__all__ = ["FFN", "FFNS", "GLU", "MLP"]
