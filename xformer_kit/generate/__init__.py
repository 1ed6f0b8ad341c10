"""How does a model speak? Decoding drives caches; it does not own them."""

from xformer_kit.generate.sampling import choose, generate, stream

__all__ = ["choose", "generate", "stream"]
