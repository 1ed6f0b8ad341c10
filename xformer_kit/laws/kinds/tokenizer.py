"""Laws of tokenizers."""

from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from xformer_kit.data.tokenizer import load_tokenizer
from xformer_kit.laws.kinds.registry import Component, law_of

LINES = (
    "The cat sat on the mat, and the dog sat on the cat.\n\n"
    "In 1999 the 2,048 dogs' mats were 3.5 times as large:  two  spaces,\ta tab, a-b, (c).\n"
    "Ein Fluss, ein Maß, l'été, 東京 and 🙂.\n"
)
FITTED = LINES * 8
# Of words that are in the fitted text.
TEXTS = (LINES, "the dog", " the mat, ", "🙂. 東京 l'été,\n", "a\n\n\ttab,", "")
# Of characters that are often normalised, for tokenizers that keep every text.
UNUSUAL = "the\r\ndog\ra cat", "e\u0301 \u00a0the\ufeff cat", "the\0dog"
CUTS = 1, 7, 40  # characters of the pieces of a text


@law_of("tokenizer", "ids")
def ids(component: Component) -> None:
    """A text becomes ids from 0 to vocab_size - 1, an array (n,) of integers, and each token has
    its bytes.

    Fails: the ids of 'a b' are not from 0 to 255.
    Fix: Return a numpy array of integers below `vocab_size`, and bytes for each of them from
        `pieces`.
    """
    tokenizer = fitted(component)
    size, pieces = tokenizer.vocab_size, tokenizer.pieces()
    if len(pieces) != size or not all(isinstance(piece, bytes) for piece in pieces):
        raise component.broken(f"`pieces` are not bytes of each of the {size} tokens")
    for text in TEXTS:
        encoded = tokenizer.encode(text)
        if (
            not isinstance(encoded, np.ndarray)
            or encoded.ndim != 1
            or encoded.dtype.kind not in "iu"
        ):
            raise component.broken(f"the ids of {text[:20]!r} are no array (n,) of integers")
        if len(encoded) and not 0 <= encoded.min() <= encoded.max() < size:
            raise component.broken(f"the ids of {text[:20]!r} are not from 0 to {size - 1}")


@law_of("tokenizer", "round trip")
def round_trip(component: Component) -> None:
    """A text without unknown tokens is decoded as it was, or, by a tokenizer that does not keep
    white space, to a text of the same ids; ids that are decoded in parts give the same text.

    Fails: 'Hello, world' is decoded as 'hello, world'.
    Fix: Return from `pieces` the bytes that each token stands for; set `spaced` if white space
        is not kept, and `unknown_id` if some characters have no token.
    """
    tokenizer = fitted(component)
    keeps = not tokenizer.spaced and tokenizer.unknown_id is None
    for text in (*TEXTS, *(UNUSUAL if keeps else ())):
        encoded = tokenizer.encode(text)
        decoded = tokenizer.decode(encoded)
        pairs = zip(text, decoded, strict=False)
        at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        shown = f"{text[:at][-10:] + text[at:][:20]!r} is decoded as"
        shown += f" {decoded[:at][-10:] + decoded[at:][:20]!r}"
        if keeps and decoded != text:
            raise component.broken(shown)
        if not keeps and not np.array_equal(tokenizer.encode(decoded), encoded):
            raise component.broken(f"{shown}, of other ids")
        stream = tokenizer.stream()
        streamed = "".join([*(stream(id) for id in encoded.tolist()), stream.end()])
        if streamed != decoded:
            raise component.broken(f"{decoded[:30]!r} is decoded one by one as {streamed[:30]!r}")


@law_of("tokenizer", "pieces of a text")
def pieces_of_a_text(component: Component) -> None:
    """The ids of a text that is given in pieces are those of the whole text, wherever it is cut.

    Fails: in pieces of 7 characters a text has other ids.
    Fix: Give `encode_all` the end of a piece again with the next one, up to a place at which no
        token begins or ends elsewhere.
    """
    tokenizer, text = fitted(component), LINES
    expected = tokenizer.encode(text).tolist()
    for cut in CUTS:
        parts = [text[start : start + cut] for start in range(0, len(text), cut)]
        found = [id for one in tokenizer.encode_all(iter(parts)) for id in one.ids.tolist()]
        if found != expected:
            raise component.broken(f"in pieces of {cut} characters a text has other ids")


@law_of("tokenizer", "bytes")
def bytes_of_tokens(component: Component) -> None:
    """The bytes of the text that tokens stand for are those of the text in utf-8, from which bits
    per byte are computed.

    Fails: the tokens of 'Hello, world' stand for 11 bytes of 12.
    Fix: Count in `sizes` the bytes of the text in utf-8, not characters and not the bytes of a
        changed text.
    """
    tokenizer = fitted(component)
    for text in TEXTS:
        encoding = tokenizer.encoding(text)
        size = len(text.encode())
        if encoding.bytes != size or (len(encoding.ids) and encoding.sizes.sum() != size):
            raise component.broken(
                f"the tokens of {text[:20]!r} stand for {int(encoding.sizes.sum())} bytes of {size}"
            )
        if len(encoding.sizes) != len(encoding.ids) or (encoding.sizes < 0).any():
            raise component.broken(f"the tokens of {text[:20]!r} have no number of bytes each")


@law_of("tokenizer", "saved")
def saved(component: Component) -> None:
    """A tokenizer that is saved and loaded has the same ids and bytes, and one that is fitted on
    the same text again, in other pieces.

    Fails: loaded, the tokenizer has other ids.
    Fix: Return from `state` all that `encode` reads, and set it in `restore`; choose tokens in
        an order that does not depend on how the text was cut.
    """
    tokenizer, again = fitted(component), fitted(component, piece=50)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        tokenizer.save(path)
        loaded = load_tokenizer(path)
    for other, what in ((loaded, "loaded"), (again, "fitted again")):
        if other.pieces() != tokenizer.pieces():
            raise component.broken(f"{what}, the tokenizer has other tokens")
        if any(other.encode(text).tolist() != tokenizer.encode(text).tolist() for text in TEXTS):
            raise component.broken(f"{what}, the tokenizer has other ids")


def fitted(component: Component, piece: int = len(FITTED)) -> Any:
    """Returns the tokenizer, fitted on a text in pieces of these many characters if it is one that
    is fitted.
    """
    tokenizer = component.create()
    if tokenizer.fit_splits:
        tokenizer.fit(FITTED[i : i + piece] for i in range(0, len(FITTED), piece))
    return tokenizer
