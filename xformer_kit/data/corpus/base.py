"""Base of the corpora: their splits, in a fixed order, and the fingerprint of their content.

The splits are disjoint and fixed: what is read for validation is never read for training, whatever
the seed.
"""

import hashlib
import importlib.util
from collections.abc import Iterator
from typing import Any

from xformer_kit.data.plain import Plain
from xformer_kit.registry import ConfigError, Fault, Registry

TextPairs = Iterator[tuple[str, str]]  # (source, target) each


class Corpus:
    """Base of the corpora. `split` is one of its `splits`.

    form: the form of the data. `text`: one long text, from `texts`. `pairs`: sources and targets,
    from `pairs`. `labelled`: examples of which some tokens are predicted, from `dataset`.
    """

    form = "text"
    documents = False  # whether each piece of `texts` is a document
    splits: tuple[str, ...] = ("train", "valid")
    place = "data"  # config path of its node; a mixture sets that of each of its corpora

    @classmethod
    def forms(cls) -> dict[str, str]:
        """Every form that it can have -> what has to be set for it on the command line, with a
        space in front.
        """
        return {cls.form: ""}

    @classmethod
    def form_of(cls, options: Plain) -> str:
        """The form with these options."""
        return cls.form

    @classmethod
    def documents_of(cls, options: Plain) -> bool:
        """Whether it is a text of documents with these options."""
        return cls.documents and cls.form_of(options) == "text"

    def at(self, option: str) -> str:
        """The config path of an option, for faults that reading finds and for what they mention."""
        return f"{self.place}.{option}"

    def refused(self, option: str, rule: str, got: str = "", fix: str = "") -> ConfigError:
        """The error of an option, or with "" of the corpus."""
        return ConfigError(Fault(option, rule, got, fix).at(self.place))

    def stamp(self) -> list[Any]:
        """Plain values, found in an instant, that differ whenever the content may differ: here the
        options; of files also sizes and times.
        """
        name = CORPORA.name_of(type(self))
        return [name, {option: getattr(self, option) for option in CORPORA.options(str(name))}]

    def fingerprint(self) -> str:
        """sha256 of all splits: of content, not of places, so that a corpus can be moved."""
        digest = hashlib.sha256()
        for split in self.splits:
            digest.update(b"\xff" + split.encode())  # neither 0xFF nor 0xFE occurs in utf-8
            for item in self.items(split):
                for side in (item,) if isinstance(item, str) else item:
                    digest.update(side.encode() + b"\xfe" * isinstance(item, tuple))
        return digest.hexdigest()

    def texts(self, split: str) -> Iterator[str]:
        """The text of a split in order, in pieces of about 1 MiB at most. Raises ConfigError if it
        cannot be read.
        """
        raise NotImplementedError

    def items(self, split: str) -> Iterator[Any]:
        """The texts or the pairs of a split, by the form."""
        return self.texts(split)

    def size(self) -> int:
        """Approximate bytes of all splits, for the progress bar; 0 if unknown."""
        return 0

    def why_empty(self, split: str) -> Fault | None:
        """The fault of a split that is empty for a reason of the corpus; else None."""
        return None


CORPORA = Registry("corpus", base=Corpus, group="data")


class PairCorpus(Corpus):
    """Base of the corpora of pairs. A corpus defines `pairs`; `splits` if it has a test set."""

    form = "pairs"

    def pairs(self, split: str) -> TextPairs:
        """(source, target) of a split, in order. Raises ConfigError if it cannot be read."""
        raise NotImplementedError

    def texts(self, split: str, side: str | None = None) -> Iterator[str]:
        """The texts for a tokenizer, each with a line end; `side` is "source", "target", or None
        for both.
        """
        for source, target in self.pairs(split):
            if side != "target":
                yield source + "\n"
            if side != "source":
                yield target + "\n"

    def items(self, split: str) -> Iterator[Any]:
        return self.pairs(split) if self.form == "pairs" else self.texts(split)


def absent(corpus: Any, package: str, extra: str) -> Iterator[Fault]:
    """The fault of a corpus whose package is not installed."""
    if importlib.util.find_spec(package) is None:
        yield Fault(
            "name",
            f"corpus '{CORPORA.name_of(corpus)}' needs the package {package}",
            got="none",
            fix=f"Use pip install 'xformer_kit[{extra}]'.",
        )


def name_hash(name: str) -> int:
    """64 bits of the sha256 of a name: a split by it is the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def share(name: str) -> float:
    """The place of a name in [0, 1), by its hash."""
    return name_hash(name) / 2**64
