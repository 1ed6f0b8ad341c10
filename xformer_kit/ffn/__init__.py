"""What does a token do alone? forward(x, real) -> (x, report), over (b, t, dim)."""

from xformer_kit.ffn.dense import FFNS, GLU, MLP, FFN

__all__ = ["FFN", "FFNS", "GLU", "MLP"]
