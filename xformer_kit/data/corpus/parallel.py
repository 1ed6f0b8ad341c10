"""Pairs in text files, such as translations: a file for each side, or columns of one file."""

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from xformer_kit.data import files
from xformer_kit.data.corpus.base import CORPORA, TextPairs
from xformer_kit.data.corpus.hash_split import HashSplitFiles, join_sources
from xformer_kit.registry import Fault, suggestion


@CORPORA.register("pairs", also_called=("parallel", "bitext", "parallel_text", "moses"))
@dataclass(kw_only=True, eq=False)
class Parallel(HashSplitFiles):
    """Two text files in utf-8, one per side: line i of one is paired with line i of the other.

    The splits are separate files, or fractions of the training lines by a hash of the source.
    Pairs with an empty line are left out and counted.
    """

    split_options = {
        "train": ("source", "target"),
        "valid": ("valid_source", "valid_target"),
        "test": ("test_source", "test_target"),
    }

    # a file of training sources such as train.en; a .gz or .zst file is decompressed
    source: str
    target: str  # a file of training targets such as train.de
    # share of the training sources for validation; null is 0.05, or files below
    valid: float | None = None
    test: float = 0.0  # share of the training sources for the test
    valid_source: str | None = None  # file of sources for validation
    valid_target: str | None = None  # file of targets for validation
    test_source: str | None = None  # file of sources for the test
    test_target: str | None = None  # file of targets for the test

    def find(self, *options: str) -> list[Path]:
        return [files.find_one(getattr(self, name), self.option_path(name)) for name in options]

    @classmethod
    def check(cls, options, context):
        for names in cls.split_options.values():
            for name, other in (names, names[::-1]):
                if getattr(options, other) is None is not getattr(options, name):
                    yield Fault(
                        name,
                        f"needs {context.path}.{other} with it, line by line",
                        fix="Give both or none.",
                    )
        yield from super().check(options, context)

    def rows(self, split: str) -> TextPairs:
        options = self.split_options[split]
        paths = [self.option_path(option) for option in options]
        both = zip_longest(*map(files.lines, self.files[split], paths))
        for number, (source, target) in enumerate(both, 1):
            if source is None or target is None:
                short = 0 if source is None else 1
                raise self.config_error(
                    options[short],
                    f"must have a line for each of {paths[1 - short]}; it has {number - 1:,}",
                    fix="Align the two files.",
                )
            yield source, target


@CORPORA.register("tsv", also_called=("tab", "tabs"))
@dataclass(kw_only=True, eq=False)
class TabSeparated(HashSplitFiles):
    """Text files in utf-8 with a pair in each line, in columns separated by tabs, without quotes or
    escapes.

    If columns are named, the first line of each file holds the names.
    """

    suffixes = (".tsv", ".tsv.gz", ".tsv.zst")

    # a file such as train.tsv, a directory (its *.tsv, *.tsv.gz, *.tsv.zst), or a glob
    path: str
    # of source and target: numbers from 1, or names; several sources are joined by ` ||| `
    columns: tuple[int | str, ...] = (1, 2)
    # share of the sources for validation; null is 0.05, or valid_path
    valid: float | None = None
    test: float = 0.0  # share of the sources for the test
    valid_path: str | None = None  # files for validation
    test_path: str | None = None  # files for the test

    @classmethod
    def check(cls, options, context):
        columns = options.columns
        are_texts = [isinstance(column, str) for column in columns]
        known = all(are_texts) or (not any(are_texts) and min(columns, default=0) >= 1)
        if len(columns) < 2 or len({*columns}) < len(columns) or not known:
            yield Fault(
                "columns",
                "must be two or more different numbers from 1 on, or names",
                f"{list(columns)}",
                "Try [1,2].",
            )
        yield from super().check(options, context)

    def rows(self, split: str) -> TextPairs:
        (option,) = self.split_options[split]
        for file in self.files[split]:
            lines = enumerate(files.lines(file, self.option_path(option)), 1)
            if isinstance(self.columns[0], str):
                _, names = next(lines, (1, ""))
                indices = [self._index(column, names.split("\t"), file) for column in self.columns]
            else:
                indices = [int(column) - 1 for column in self.columns]
            *sources, target = indices
            needed = max(indices) + 1
            for number, line in lines:
                cells = line.split("\t")
                if len(cells) >= needed:
                    yield join_sources([cells[source] for source in sources]), cells[target]
                elif not line.strip():
                    yield "", ""  # counted as empty
                else:
                    raise self.config_error(
                        option,
                        f"must have {needed} columns between tabs",
                        f"{len(cells)} in line {number:,} of '{file}'",
                        f"Mend the line, or set {self.option_path('columns')}.",
                    )

    def _index(self, column: int | str, names: list[str], file: Path) -> int:
        """Returns the index of a named column. Raises ConfigError if the file lacks it."""
        if column not in names:
            raise self.config_error(
                "columns",
                f"no column of '{file}' is called '{column}'",
                fix=f"{suggestion(column, names, 'It has')} A number from 1 also names one.",
            )
        return names.index(str(column))
