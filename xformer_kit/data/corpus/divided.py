"""Base of the corpora of pairs whose splits are given, or cut by a hash of the source."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xformer_kit.data import files
from xformer_kit.data.corpus.base import PairCorpus, share
from xformer_kit.registry import Fault, Options

FEW = 1000  # different sources at most, if they are given as the reason for an empty split
VALID = 0.05  # share of the sources for validation, by default
PATHS = {"train": "path", "valid": "valid_path", "test": "test_path"}  # split -> option


class Divided(PairCorpus):
    """Pairs whose splits are given, or cut from those of training: by a hash of the source, so that
    all targets of a source are in one split, the same whatever else there is. A corpus defines
    `rows`, and calls `divide`.
    """

    files: dict[Any, list[Path]]  # what is given for a split -> its files
    chosen: Any = None  # plain values: what is read of the files
    own = "data.{split}_path"  # what gives a split of its own

    def divide(self, given: Mapping[str, Any], valid: float | None, test: float) -> None:
        """`given`: split -> the argument of `rows`, or None for a split that is not given."""
        self.given = {split: what for split, what in given.items() if what is not None}
        self.shares = {
            "test": test,
            "valid": (0.0 if "valid" in self.given else VALID) if valid is None else valid,
        }
        self.splits = ("train", "valid", *(["test"] if test or "test" in self.given else []))

    def stamp(self) -> list[Any]:
        return [self.chosen, self.shares, *(files.stamp(some) for some in self.files.values())]

    def size(self) -> int:
        return sum(map(files.size, self.files.values()))

    def rows(self, what: Any) -> Iterator[tuple[str, str]]:
        """(source, target) of what is given for a split. Raises ConfigError if it cannot be
        read.
        """
        raise NotImplementedError

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        if split != "train" and split in self.given:
            yield from self.rows(self.given[split])
            return
        for row in self.rows(self.given["train"]):
            if self._split(row[0]) == split:
                yield row

    def _split(self, source: str) -> str:
        """The test set is cut first, so that another share for validation leaves it as it is."""
        at = share(source)
        for split, size in self.shares.items():
            if at < size:
                return split
            at -= size
        return "train"

    def why_empty(self, split: str) -> Fault | None:
        """The fault of a split that is empty since the training data repeat a few sources; None for
        other causes.
        """
        if split != "train" and split in self.given:
            return None
        found: set[int] = set()
        count = 0
        for row in self.rows(self.given["train"]):
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
        own = f"a {kind} set in {self.own.format(split=other)}"
        return Fault(
            "data",
            f"the split {split} must hold an example",
            got=f"none: {few}, and equal {what} go to the same split, by a hash",
            fix=f"Give {what} that differ, or {own}.",
        )


class DividedFiles(Divided):
    """Pairs in files: `rows` is called with "path", "valid_path" or "test_path", the option that
    names them.
    """

    suffixes: tuple[str, ...]

    def find(self, valid: float | None, test: float, *paths: str | None) -> None:
        """Sets the splits; `paths` in the order of PATHS."""
        named = dict(zip(PATHS.values(), paths, strict=True))
        given = {split: o if named[o] is not None else None for split, o in PATHS.items()}
        self.divide(given, valid, test)
        self.files = {
            option: files.find(str(named[option]), option, self.suffixes)
            for option in self.given.values()
        }

    @classmethod
    def check(cls, options, context):
        yield from share_faults(options, "valid_path", "test_path")
        paths = {name: getattr(options, name) for name in PATHS.values()}
        yield from files.named_twice(paths)
        for name, path in paths.items():
            if path is not None:
                yield from cls.file_faults(path, name)

    @classmethod
    def file_faults(cls, path: str, option: str) -> Iterator[Fault]:
        """Faults of files that do not exist or cannot be read."""
        yield from files.faults(path, option, cls.suffixes)


def share_faults(options: Options, valid: str, test: str) -> Iterator[Fault]:
    """Faults of the shares `valid` and `test`, next to the options of these names that give whole
    splits.
    """
    for name, other, least in (("valid", valid, "above 0"), ("test", test, "at least 0")):
        size, given = getattr(options, name), getattr(options, other)
        if size and given is not None:
            yield Fault(
                name,
                f"is a share of the training data, and data.{other} gives a split",
                fix="Leave one of them out.",
            )
        elif size is not None and not (
            (0 < size < 1) or (size == 0 and (least != "above 0" or given is not None))
        ):
            yield Fault(name, f"must be {least} and below 1", got=f"{size}", fix=f"Try {VALID}.")
    if (
        0 < (options.valid or 0) < 1
        and 0 < (options.test or 0) < 1
        and options.valid + options.test >= 1
    ):
        yield Fault(
            "valid",
            "must leave something for training, with data.test",
            got=f"{options.valid} and {options.test}",
        )
