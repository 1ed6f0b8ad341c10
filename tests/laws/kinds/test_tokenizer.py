"""Each law of tokenizers is broken by a faulty tokenizer."""

import numpy as np
from kind_laws import assert_keeps_all, broken_kind_test

from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.data.tokenizer.simple import Byte
from xformer_kit.laws.kinds import KIND_LAWS


class Pairs(Tokenizer):
    """A good one: bytes, and the pairs of bytes of the text that it is fitted on."""

    fit_splits = ("train",)

    def __init__(self):
        self.set_pairs([])

    def set_pairs(self, pairs):
        self.pairs = pairs
        self.vocab_size = 256 + len(pairs)
        self.id_of = {pair: 256 + i for i, pair in enumerate(pairs)}

    def fit(self, texts):
        data = "".join(texts).encode()
        self.set_pairs(sorted({data[i : i + 2] for i in range(0, 200, 2)}))

    def encode(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        ids, i = [], 0
        while i < len(data):
            pair = self.id_of.get(data[i : i + 2])
            ids.append(data[i] if pair is None else pair)
            i += 1 if pair is None else 2
        return np.array(ids, dtype=self.dtype)

    def encode_all(self, texts):
        yield self.encoding("".join(texts))

    def pieces(self):
        return [bytes([i]) for i in range(256)] + self.pairs

    def state(self):
        return {"pairs": [pair.hex() for pair in self.pairs]}

    @classmethod
    def restore(cls, state):
        tokenizer = cls()
        tokenizer.set_pairs([bytes.fromhex(pair) for pair in state["pairs"]])
        return tokenizer


class OneTooLarge(Byte):
    def encode(self, text):
        return super().encode(text).astype(np.int64) + 1 * (len(text) > 100) * 200


class AList(Byte):
    def encode(self, text):
        return super().encode(text).tolist()


class OnePieceLess(Byte):
    def pieces(self):
        return super().pieces()[:-1]


class LowerCase(Byte):
    def encode(self, text):
        return super().encode(text.lower())


class OneLineEnd(Byte):
    def encode(self, text):
        return super().encode(text.replace("\r\n", "\n"))


class OfCharacters(Byte):
    """Decodes each character by itself."""

    def stream(self, continuation=False):
        stream = super().stream(continuation)
        stream.decoder = type(
            "Each", (), {"decode": lambda _, data, final=False: data.decode("utf-8", "replace")}
        )()
        return stream


class CutsPairs(Pairs):
    """Does not join the pieces of a text."""

    encode_all = Tokenizer.encode_all


class CountsCharacters(Byte):
    def encoding(self, text):
        encoding = super().encoding(text)
        return encoding._replace(bytes=len(text))


class ForgetsPairs(Pairs):
    def state(self):
        return {"pairs": []}


class FitsFirstPiece(Pairs):
    def fit(self, texts):
        super().fit([next(iter(texts))])


ARGUMENTS = [
    ("ids", OneTooLarge, "are not from 0 to 255"),
    ("ids", AList, "are no array"),
    ("ids", OnePieceLess, "`pieces` are not bytes of each of the 256 tokens"),
    ("round trip", LowerCase, "'The cat sat .* is decoded as 'the cat sat"),
    ("round trip", OneLineEnd, r"'the\\r\\ndog.* is decoded as 'the\\ndog"),
    ("round trip", OfCharacters, "is decoded one by one as"),
    ("pieces of a text", CutsPairs, "in pieces of 1 characters a text has other ids"),
    ("bytes", CountsCharacters, "stand for .* bytes of"),
    ("saved", ForgetsPairs, "loaded, the tokenizer has other tokens"),
    ("saved", FitsFirstPiece, "fitted again, the tokenizer has other tokens"),
]

test_a_broken_tokenizer_is_caught = broken_kind_test("tokenizer", ARGUMENTS)


def test_every_law_catches_a_broken_tokenizer():
    assert KIND_LAWS["tokenizer"].keys() == {law for law, *_ in ARGUMENTS}


def test_a_tokenizer_keeps_all():
    assert_keeps_all("tokenizer", Pairs)
