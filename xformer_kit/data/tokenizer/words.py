"""A tokenizer whose vocabulary is given: one token per word of a list."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from xformer_kit.data.tokenizer.base import TOKENIZERS, Tokenizer
from xformer_kit.registry import ConfigError, nearest


@TOKENIZERS.register("words", also_called=("vocabulary", "word_list"))
class Words(Tokenizer):
    """One token per word of a fixed list, word i is token i: what every probe is read with, as its words are known.

    Text is words with spaces between them, how many does not matter; decoded it has one behind each word.
    """

    def __init__(self, *, words: tuple[str, ...]):  # the whole vocabulary, in the order of the ids
        self.words = tuple(words)
        self.vocab_size = len(self.words)
        self._id_of = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def check(cls, options, context):
        if not options.words:
            yield "words: must be at least one word; got none. Try [a, b]."
        if bad := [word for word in options.words if word.split() != [word]]:
            yield f"words: must be words without spaces; got {bad[0]!r}. Leave it out."
        if twice := [word for i, word in enumerate(options.words) if word in options.words[:i]]:
            yield f"words: must differ; got '{twice[0]}' twice. Leave one out."

    def encode(self, text: str | bytes) -> np.ndarray:
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        try:
            return np.array([self._id_of[word] for word in text.split()], dtype=self.dtype)
        except KeyError as error:
            word = str(error.args[0])
            raise ConfigError(
                f"tokenizer: the vocabulary is {self.vocab_size} words; got '{word}'.{nearest(word, self.words)} "
                f"It has: {', '.join(self.words[:8])}{', ...' if self.vocab_size > 8 else ''}."
            ) from None

    def pieces(self) -> list[bytes]:
        return [word.encode() + b" " for word in self.words]

    def state(self) -> dict[str, Any]:
        return {"words": list(self.words)}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "Words":
        return cls(words=tuple(state["words"]))
