"""Base of the corpora: splits of texts, of pairs of texts, or of labelled examples.

Splits are disjoint and fixed: validation data are never training data, whatever the seed.
"""

import hashlib
import importlib.util
from collections.abc import Iterator
from typing import Any

from xformer_kit.data.plain import Plain
from xformer_kit.registry import ConfigError, Fault, Registry, config_error

TextPairs = Iterator[tuple[str, str]]  # (source, target) each


class Corpus:
    """Base of the corpora. `split` is one of its `splits`.

    form: `text`, one long text, from `texts`; `pairs`, sources and targets, from `pairs`;
    `labelled`, examples of which some tokens are predicted, of a `Probe`.
    """

    form = "text"
    documents: bool = False  # whether each text of `texts` is a document
    splits: tuple[str, ...] = ("train", "valid")  # and "test", if it has one
    config_path: str = "data"  # config path of its options; a mixture sets that of its parts

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.form == "labelled" and not hasattr(cls, "make_example"):
            rule = "a corpus of the form 'labelled' must derive from xformer_kit.data.corpus.Probe"
            raise config_error("data", rule, got=cls.__name__)

    @classmethod
    def forms(cls) -> dict[str, str]:
        """Each form that the corpus can have -> the overrides for it, with a leading space."""
        return {cls.form: ""}

    @classmethod
    def form_of(cls, options: Plain) -> str:
        """Returns the form of the corpus with these options."""
        return cls.form

    @classmethod
    def documents_of(cls, options: Plain) -> bool:
        """Whether the corpus is a text of documents with these options."""
        return cls.documents and cls.form_of(options) == "text"

    def option_path(self, option: str) -> str:
        """Returns the config path of an option, for messages."""
        return f"{self.config_path}.{option}"

    def config_error(self, option: str, rule: str, got: str = "", fix: str = "") -> ConfigError:
        """Returns the error of an option or, with "", of the corpus."""
        return ConfigError(Fault(option, rule, got, fix).at(self.config_path))

    def stamp(self) -> list[Any]:
        """Returns plain values that change when the content may, without reading it: the options;
        for files also their sizes and times.
        """
        name = CORPORA.name_of(type(self))
        return [name, {option: getattr(self, option) for option in CORPORA.options(str(name))}]

    def fingerprint(self) -> str:
        """Returns the sha256 of the content of all splits; it does not depend on paths."""
        digest = hashlib.sha256()
        for split in self.splits:
            digest.update(b"\xff" + split.encode())  # neither 0xFF nor 0xFE occurs in utf-8
            for item in self.items(split):
                for side in (item,) if isinstance(item, str) else item:
                    digest.update(side.encode() + b"\xfe" * isinstance(item, tuple))
        return digest.hexdigest()

    def texts(self, split: str) -> Iterator[str]:
        """Yields the text of a split in order, in pieces of at most about 1 MiB. Raises ConfigError
        if it cannot be read.
        """
        raise NotImplementedError

    def items(self, split: str) -> Iterator[Any]:
        """Yields the texts or the pairs of a split, depending on the form."""
        return self.texts(split)

    def size(self) -> int:
        """Returns the approximate bytes of all splits, for the progress bar; 0 if unknown."""
        return 0


CORPORA = Registry("corpus", base=Corpus, group="data")


class PairCorpus(Corpus):
    """Base of the corpora of pairs. A corpus defines `pairs`, and `splits` if it has a test set."""

    form = "pairs"

    def pairs(self, split: str) -> TextPairs:
        """Yields (source, target) of a split, in order. Raises ConfigError if it cannot be read."""
        raise NotImplementedError

    def texts(self, split: str, side: str | None = None) -> Iterator[str]:
        """Yields the texts to fit a tokenizer on, each with a line end. side: "source", "target",
        or None for both.
        """
        for source, target in self.pairs(split):
            if side != "target":
                yield source + "\n"
            if side != "source":
                yield target + "\n"

    def items(self, split: str) -> Iterator[Any]:
        return self.pairs(split) if self.form == "pairs" else self.texts(split)


def missing_package(corpus: Any, package: str, extra: str) -> Iterator[Fault]:
    """Yields a fault if the package of a corpus is not installed."""
    if importlib.util.find_spec(package) is None:
        yield Fault(
            "name",
            f"corpus '{CORPORA.name_of(corpus)}' needs the package {package}",
            got="none",
            fix=f"Use pip install 'xformer_kit[{extra}]'.",
        )


def name_hash(name: str) -> int:
    """Returns 64 bits of the sha256 of a name; splits by it are the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def hash_fraction(name: str) -> float:
    """Returns a number in [0, 1), uniform over names, from the hash of a name."""
    return name_hash(name) / 2**64
