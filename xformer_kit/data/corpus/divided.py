"""Base of the corpora of pairs whose splits are given, or cut by a hash of the source."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from xformer_kit.data import files
from xformer_kit.data.corpus.base import PairCorpus, TextPairs, share
from xformer_kit.registry import Context, Fault, Options

FEW = 1000  # different sources at most, if they are given as the reason for an empty split
VALID = 0.05  # share of the sources for validation, by default


class Divided(PairCorpus):
    """Pairs whose splits are given, or cut from those of training: by a hash of the source, so that
    all targets of a source are in one split, the same whatever else there is. A corpus is a
    dataclass with the options `valid` and `test`, and defines `rows` and `named`.
    """

    named: ClassVar[Mapping[str, tuple[str, ...]]]  # split -> the options that give it
    valid: float | None
    test: float

    def __post_init__(self) -> None:
        self.form = self.form_of(vars(self))
        test = self.test or "test" in self.own
        self.splits = ("train", "valid", "test") if test else ("train", "valid")

    @cached_property
    def own(self) -> list[str]:
        """The splits besides training that are given."""
        return [s for s in ("valid", "test") if getattr(self, self.named[s][0]) is not None]

    @cached_property
    def shares(self) -> dict[str, float]:
        valid = (0.0 if "valid" in self.own else VALID) if self.valid is None else self.valid
        return {"test": self.test, "valid": valid}

    @classmethod
    def check(cls, options, context):
        """Faults of the shares, next to options that give whole splits."""
        for name, least in (("valid", "above 0"), ("test", "at least 0")):
            size, other = getattr(options, name), cls.named[name][0]
            given = getattr(options, other) is not None
            if size and given:
                yield Fault(
                    name,
                    f"is a share of the training data, and {context.path}.{other} gives a split",
                    fix="Leave one of them out.",
                )
            elif size is None or 0 < size < 1 or (size == 0 and (name == "test" or given)):
                continue
            else:
                yield Fault(name, f"must be {least} and below 1", f"{size}", f"Try {VALID}.")
        sizes = options.valid or 0, options.test or 0
        if all(0 < size < 1 for size in sizes) and sum(sizes) >= 1:
            yield Fault(
                "valid",
                f"must leave something for training, with {context.path}.test",
                got=f"{options.valid} and {options.test}",
            )

    def rows(self, split: str) -> TextPairs:
        """(source, target) of what is given for a split. Raises ConfigError if it cannot be
        read.
        """
        raise NotImplementedError

    def pairs(self, split: str) -> TextPairs:
        if split in self.own:
            return self.rows(split)
        return (row for row in self.rows("train") if self._split(row[0]) == split)

    def _split(self, source: str) -> str:
        """The test set is cut first, so that another share for validation leaves it as it is."""
        at = share(source)
        for split, size in self.shares.items():
            if at < size:
                return split
            at -= size
        return "train"

    def why_empty(self, split: str) -> Fault | None:
        """The fault of a split that is empty since the training data repeat a few sources."""
        if split in self.own:
            return None
        found: set[int] = set()
        count = 0
        for row in self.rows("train"):
            if all(text.strip() for text in row):
                count += 1
                found.add(hash(row[0]))
                if len(found) > FEW:
                    return None
        if 2 * len(found) > count:
            return None
        what = "sources" if self.form == "pairs" else "documents"
        few = (
            f"all {count:,} {what} are equal"
            if len(found) == 1
            else f"of {count:,} {what} only {len(found):,} differ"
        )
        other, kind = ("test", "test") if split == "test" else ("valid", "validation")
        own = f"a {kind} set in {' and '.join(map(self.at, self.named[other]))}"
        return Fault(
            self.place,
            f"the split {split} must hold an example",
            got=f"none: {few}, and equal {what} go to the same split, by a hash",
            fix=f"Give {what} that differ, or {own}.",
        )


class DividedFiles(Divided):
    """Base: pairs in files."""

    named = {"train": ("path",), "valid": ("valid_path",), "test": ("test_path",)}
    suffixes: ClassVar[tuple[str, ...]] = files.SUFFIXES

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        """Split that is given -> its files."""
        return {split: self.find(*self.named[split]) for split in ("train", *self.own)}

    def find(self, option: str) -> list[Path]:
        return files.find(getattr(self, option), self.at(option), self.suffixes)

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from super().check(options, context)
        given = {
            name: path
            for names in cls.named.values()
            for name in names
            if (path := getattr(options, name)) is not None
        }
        whole = [names for names in cls.named.values() if given.keys() >= {*names}]
        for side in zip(*whole, strict=True):
            yield from files.named_twice({name: given[name] for name in side}, context.path)
        for name, path in given.items():
            yield from cls.file_faults(path, name)

    @classmethod
    def file_faults(cls, path: str, option: str) -> Iterator[Fault]:
        """Faults of files that do not exist or cannot be read."""
        yield from files.faults(path, option, cls.suffixes)

    def stamp(self) -> list[Any]:
        return [*super().stamp(), *map(files.stamp, self.files.values())]

    def size(self) -> int:
        return sum(map(files.size, self.files.values()))
