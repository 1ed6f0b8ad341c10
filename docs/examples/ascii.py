"""A tokenizer: python train.py components=[docs/examples/ascii.py] tokenizer=ascii"""

import numpy as np

from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer


@TOKENIZERS.register("ascii")
class Ascii(Tokenizer):
    """One token for each of the 128 characters of ASCII; others are a question mark (RFC 20)."""

    vocab_size = 128
    unknown_id = ord("?")

    def encode(self, text):
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8)

    def pieces(self):
        return [bytes([i]) for i in range(128)]
