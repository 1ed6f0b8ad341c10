"""Base of the corpora whose splits are given, or cut from the training data by a hash of the
source.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from xformer_kit.data import files
from xformer_kit.data.corpus.base import PairCorpus, TextPairs, hash_fraction
from xformer_kit.registry import Context, Fault, Options, in_range
from xformer_kit.registry.messages import in_open_range

DEFAULT_VALID = 0.05  # share of the sources for validation, by default
SEPARATOR = " ||| "  # between several sources of a pair


def join_sources(sources: Sequence[str]) -> str:
    """Returns one source; "" if one of several is empty, so that the pair is left out."""
    if len(sources) > 1 and not all(map(str.strip, sources)):
        return ""
    return SEPARATOR.join(sources)


class HashSplitCorpus(PairCorpus):
    """Base of the corpora of pairs whose splits are given, or cut from the training data by a hash
    of the source: all targets of a source are in one split, which does not depend on other pairs.

    A corpus is a dataclass with the options `valid` and `test`, and defines `rows` and
    `split_options`.
    """

    # split -> the options that name its data
    split_options: ClassVar[Mapping[str, tuple[str, ...]]]
    valid: float | None
    test: float

    def __post_init__(self) -> None:
        self.form = self.form_of(vars(self))
        test = self.test or "test" in self.given_splits
        self.splits = ("train", "valid", "test") if test else ("train", "valid")

    @cached_property
    def given_splits(self) -> list[str]:
        """The given splits, without training."""
        return [s for s in ("valid", "test") if getattr(self, self.split_options[s][0]) is not None]

    @cached_property
    def fractions(self) -> dict[str, float]:
        """The shares of the training data that are cut off, in order."""
        default = 0.0 if "valid" in self.given_splits else DEFAULT_VALID
        return {"test": self.test, "valid": default if self.valid is None else self.valid}

    @classmethod
    def check(cls, options, context):
        """Yields the faults of the fractions `valid` and `test`."""
        for name in ("valid", "test"):
            option = cls.split_options[name][0]
            if getattr(options, option) is not None and getattr(options, name):
                yield Fault(
                    name,
                    f"is a share of the training data, and {context.path}.{option} gives a split",
                    fix="Leave one of them out.",
                )
        if getattr(options, cls.split_options["valid"][0]) is None:
            yield from in_open_range(options, f"Try {DEFAULT_VALID}.", valid=(0, 1))
        yield from in_range(options, test=(0, 1))
        if (options.valid or 0) + (options.test or 0) >= 1:
            yield Fault(
                "valid",
                f"must leave something for training, with {context.path}.test",
                got=f"{options.valid} and {options.test}",
            )

    def rows(self, split: str) -> TextPairs:
        """Yields (source, target) of a given split. Raises ConfigError if it cannot be read."""
        raise NotImplementedError

    def pairs(self, split: str) -> TextPairs:
        if split in self.given_splits:
            return self.rows(split)
        return (row for row in self.rows("train") if self._split(row[0]) == split)

    def _split(self, source: str) -> str:
        """Returns the split of a source. The test set is cut first, so that it does not depend on
        `valid`.
        """
        at = hash_fraction(source)
        for split, size in self.fractions.items():
            if at < size:
                return split
            at -= size
        return "train"


class HashSplitFiles(HashSplitCorpus):
    """Base of the corpora of pairs in files."""

    split_options = {"train": ("path",), "valid": ("valid_path",), "test": ("test_path",)}
    suffixes: ClassVar[tuple[str, ...]] = files.SUFFIXES

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        """Given split -> its files."""
        return {
            split: self.find(*self.split_options[split]) for split in ("train", *self.given_splits)
        }

    def find(self, option: str) -> list[Path]:
        """Returns the files that an option names."""
        return files.find(getattr(self, option), self.option_path(option), self.suffixes)

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from super().check(options, context)
        names = chain.from_iterable(cls.split_options.values())
        paths = {name: path for name in names if (path := getattr(options, name)) is not None}
        complete = [names for names in cls.split_options.values() if paths.keys() >= {*names}]
        for side in zip(*complete, strict=True):
            yield from files.repeated_file_faults(
                {name: paths[name] for name in side}, context.path
            )
        for name, path in paths.items():
            yield from cls.file_faults(path, name)

    @classmethod
    def file_faults(cls, path: str, option: str) -> Iterator[Fault]:
        """Yields the faults of files that do not exist or cannot be read."""
        yield from files.faults(path, option, cls.suffixes)

    def stamp(self) -> list[Any]:
        return [*super().stamp(), *map(files.stamp, self.files.values())]

    def size(self) -> int:
        return sum(map(files.size, self.files.values()))
