"""What can every corpus do? Give its splits, always in the same order, and say what its content is.

The splits are disjoint and fixed: what is read for validation is never read for training, whatever
the seed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from xformer_kit.registry import Registry


class Corpus:
    """What every corpus can do. `split` is one of its `splits`.

    form: what it gives. `text`: one long text, from `texts`. `pairs`: a source and a target each,
    from `pairs`. `labelled`: examples whose tokens are asked for at some places only, from
    `dataset`.
    """

    form = "text"
    documents = False  # whether each piece of `texts` is a document
    splits: tuple[str, ...] = ("train", "valid")
    of: Mapping[
        str, "Corpus"
    ] = {}  # the corpora that it is made of, by name, where it is a mixture

    @classmethod
    def forms(cls) -> dict[str, str]:
        """Every form that it can give -> what has to be set for it on the command line, with a
        space in front.
        """
        return {cls.form: ""}

    @classmethod
    def form_of(cls, options: Mapping[str, Any]) -> str:
        """The form that it gives with these options."""
        return cls.form

    @classmethod
    def documents_of(cls, options: Mapping[str, Any]) -> bool:
        """Whether it gives a text of documents with these options."""
        return cls.documents and cls.form_of(options) == "text"

    def stamp(self) -> list[Any]:
        """Plain values, found in an instant, that differ whenever the content may differ: paths,
        sizes, times.
        """
        raise NotImplementedError

    def fingerprint(self) -> str:
        """sha256 of the text of all splits: of content, not of places, so that a corpus can be
        moved.
        """
        digest = hashlib.sha256()
        for split in self.splits:
            digest.update(b"\xff" + split.encode())  # 0xFF never stands in utf-8
            for text in self.texts(split):
                digest.update(text.encode())
        return digest.hexdigest()

    def texts(self, split: str) -> Iterator[str]:
        """The text of a split in order, in pieces of about 1 MiB at most. Raises ConfigError where
        it cannot.
        """
        raise NotImplementedError

    def size(self) -> int:
        """Bytes of all splits together, about: for the progress bar. 0 where it is not known."""
        return 0


CORPORA = Registry("corpus", base=Corpus, group="data")


class PairCorpus(Corpus):
    """Pairs of a source and its target. A part defines `pairs`, `stamp` and, where there is a test
    set, `splits`.
    """

    form = "pairs"

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """(source, target) of a split, in order. Raises ConfigError where it cannot."""
        raise NotImplementedError

    def texts(self, split: str, side: str | None = None) -> Iterator[str]:
        """What a tokenizer learns from: each text with a line end; `side` is "source", "target", or
        None for both.
        """
        for source, target in self.pairs(split):
            if side != "target":
                yield source + "\n"
            if side != "source":
                yield target + "\n"

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for split in self.splits:
            digest.update(b"\xff" + split.encode())  # neither 0xFF nor 0xFE stands in utf-8
            for source, target in self.pairs(split):
                digest.update(source.encode() + b"\xfe" + target.encode() + b"\xfe")
        return digest.hexdigest()


def share(name: str) -> float:
    """Where a name falls in [0, 1), by its hash: the same on every machine, so that a split by it
    is fixed.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
