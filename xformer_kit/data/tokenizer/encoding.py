"""An encoded text: the ids of its tokens, and the bytes of the text that each stands for."""

from typing import NamedTuple

import numpy as np

from xformer_kit.data.tokenizer.texts import utf8


class Encoding(NamedTuple):
    """The ids of a text. The bytes are those of the text that was read, in utf-8, not of a
    decoding: white space and characters without a token are part of the token after them, or of
    the last one.
    """

    ids: np.ndarray  # (n,)
    sizes: np.ndarray  # (n,) int64: bytes of each token; their sum is `bytes`, if there are tokens
    bytes: int  # of the text
    dropped: int = 0  # characters that are not white space, and that no token stands for

    @classmethod
    def of_lengths(cls, text: str, ids: np.ndarray, lengths: np.ndarray) -> "Encoding":
        """Returns the encoding of a text that its tokens spell. lengths: (n,) bytes of each."""
        total = len(utf8(text))
        return cls(ids, _sizes(np.cumsum(lengths), total), total)

    @classmethod
    def of_spans(cls, text: str, ids: np.ndarray, spans: np.ndarray) -> "Encoding":
        """Returns the encoding of a text from the first character of each token and the character
        after its last one, spans (n, 2).
        """
        spans = np.asarray(spans, dtype=np.int64).reshape(-1, 2).clip(0, len(text))
        ends = np.concatenate([[0], np.cumsum(utf8_lengths(text))])
        begun, ended = (np.bincount(side, minlength=len(text) + 1) for side in spans.T)
        uncovered = np.flatnonzero(np.cumsum(begun - ended)[:-1] == 0).tolist()
        dropped = sum(not text[i].isspace() for i in uncovered)
        return cls(ids, _sizes(ends[spans[:, 1]], int(ends[-1])), int(ends[-1]), dropped)


def utf8_lengths(text: str) -> np.ndarray:
    """Returns the bytes of each character in utf-8; 1 for a surrogate of PEP 383."""
    points = code_points(text)
    lengths = 1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF)
    lengths[(points >= 0xDC80) & (points <= 0xDCFF)] = 1
    return lengths


def code_points(text: str) -> np.ndarray:
    """Returns the code points of a text, uint32."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _sizes(ends: np.ndarray, total: int) -> np.ndarray:
    """Returns the bytes of each token from where it ends; those after the last end are its own."""
    ends = np.maximum.accumulate(np.clip(ends, 0, total))
    ends[-1:] = total
    return np.diff(ends, prepend=0)
