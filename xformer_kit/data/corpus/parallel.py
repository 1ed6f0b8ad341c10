"""Pairs in text files, such as translations: a file for each side, or columns of one file."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from xformer_kit.data import files
from xformer_kit.data.corpus.base import CORPORA
from xformer_kit.data.corpus.divided import Divided, DividedFiles, share_faults
from xformer_kit.registry import ConfigError, Fault, choices

# split -> its options
OPTIONS = {
    "train": ("source", "target"),
    "valid": ("valid_source", "valid_target"),
    "test": ("test_source", "test_target"),
}


@CORPORA.register("pairs", also_called=("parallel", "bitext", "parallel_text", "moses"))
class Parallel(Divided):
    """Two text files in utf-8, one for each side: line i of one belongs to line i of the other.

    The splits are files of their own, or shares of the training lines by a hash of the source.
    Pairs with an empty line are left out and counted.
    """

    own = "data.{split}_source and data.{split}_target"

    def __init__(
        self,
        *,
        # a file of training sources such as train.en; a name in .gz or .zst is unpacked
        source: str,
        target: str,  # a file of training targets such as train.de
        # share of the training sources for validation; null is 0.05, or files below
        valid: float | None = None,
        test: float = 0.0,  # share of the training sources for the test
        valid_source: str | None = None,  # file of sources for validation
        valid_target: str | None = None,  # file of targets for validation
        test_source: str | None = None,  # file of sources for the test
        test_target: str | None = None,  # file of targets for the test
    ):
        named = {
            "train": (source, target),
            "valid": (valid_source, valid_target),
            "test": (test_source, test_target),
        }
        self.divide(
            {split: split if paths[0] else None for split, paths in named.items()}, valid, test
        )
        self.files = {
            split: [files.one(str(p), o) for p, o in zip(named[split], OPTIONS[split], strict=True)]
            for split in self.given
        }

    @classmethod
    def check(cls, options, context):
        whole = []
        for names in OPTIONS.values():
            given = [name for name in names if getattr(options, name) is not None]
            if len(given) == 1:
                (other,) = {*names} - {*given}
                yield Fault(
                    given[0],
                    f"needs data.{other} beside it, line by line",
                    fix="Give both or none.",
                )
            whole += [names] if len(given) == 2 else []
            for name in given:
                yield from files.faults(getattr(options, name), name)
        for side in zip(*whole, strict=True):
            yield from files.named_twice({name: getattr(options, name) for name in side})
        yield from share_faults(options, "valid_source", "test_source")

    def rows(self, what: str) -> Iterator[tuple[str, str]]:
        sides = zip(self.files[what], OPTIONS[what], strict=True)
        both = zip_longest(*(files.lines(file, option) for file, option in sides))
        for number, (source, target) in enumerate(both, 1):
            if source is None or target is None:
                raise ConfigError(self._alone(what, number, 0 if source is None else 1))
            yield source, target

    def _alone(self, split: str, number: int, short: int) -> str:
        option, (ends, goes_on) = OPTIONS[split], self.files[split][:: -1 if short else 1]
        return (
            f"data.{option[short]}: must have a line for each of data.{option[1 - short]}; line"
            f" {number:,} of '{goes_on}' is the first without a partner, for '{ends}' ends at line"
            f" {number - 1:,}. Align the two files."
        )


@CORPORA.register("tsv", also_called=("tab", "tabs", "csv"))
class Tabs(DividedFiles):
    """Text files in utf-8 with a pair in each line, in columns between tabs; nothing is quoted or
    escaped.

    Columns may be named: then each file's first line holds the names.
    """

    suffixes = (".tsv", ".tsv.gz", ".tsv.zst")

    def __init__(
        self,
        *,
        # a file such as train.tsv, a directory (its *.tsv, *.tsv.gz, *.tsv.zst), or a glob
        path: str,
        # of source and target: numbers from 1, or names
        columns: tuple[int | str, int | str] = (1, 2),
        # share of the sources for validation; null is 0.05, or valid_path
        valid: float | None = None,
        test: float = 0.0,  # share of the sources for the test
        valid_path: str | None = None,  # files for validation
        test_path: str | None = None,  # files for the test
    ):
        self.columns = self.chosen = tuple(columns)
        self.find(valid, test, path, valid_path, test_path)

    @classmethod
    def check(cls, options, context):
        names = [isinstance(column, str) for column in options.columns]
        if any(names) and not all(names):
            yield Fault(
                "columns",
                "must be two numbers or two names",
                got=f"{list(options.columns)}",
                fix="Try [1,2].",
            )
        elif not any(names) and min(options.columns) < 1:
            yield Fault(
                "columns", "are counted from 1", got=f"{list(options.columns)}", fix="Try [1,2]."
            )
        elif options.columns[0] == options.columns[1]:
            yield Fault(
                "columns", "must be two", got=f"{options.columns[0]} twice", fix="Try [1,2]."
            )
        yield from super().check(options, context)

    def rows(self, what: str) -> Iterator[tuple[str, str]]:
        for file in self.files[what]:
            lines = enumerate(files.lines(file, what), 1)
            if isinstance(self.columns[0], str):
                source, target = self._named(file, next(lines)[1].split("\t"))
            else:
                source, target = (int(column) - 1 for column in self.columns)
            needed = max(source, target) + 1
            for number, line in lines:
                cells = line.split("\t")
                if len(cells) >= needed:
                    yield cells[source], cells[target]
                elif not line.strip():
                    yield "", ""  # counted as empty
                else:
                    raise ConfigError(
                        Fault(
                            f"data.{what}",
                            f"must have {needed} columns between tabs",
                            got=f"{len(cells)} in line {number:,} of '{file}'",
                            fix="Mend the line, or set data.columns.",
                        )
                    )

    def _named(self, file: Path, names: list[str]) -> Iterator[int]:
        for column in self.columns:
            if column not in names:
                raise ConfigError(
                    Fault(
                        "data.columns",
                        f"no column of '{file}' is called '{column}'",
                        fix=f"{choices(column, names, 'It has')} A number from 1 also names one.",
                    )
                )
            yield names.index(str(column))
