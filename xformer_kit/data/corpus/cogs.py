"""COGS as a corpus: English sentences and their logical forms."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from xformer_kit.data import files
from xformer_kit.data.corpus.base import CORPORA, PairCorpus, TextPairs
from xformer_kit.data.refused import refused
from xformer_kit.registry import ConfigError

FILES = {"train": ("train",), "valid": ("dev",), "test": ("test",), "gen": ("gen", "gen.2020")}
HOME = "https://github.com/najoungkim/COGS, directory data"
FIELDS = "a sentence, its logical form and its kind, with tabs between them"


@CORPORA.register("cogs", also_called=("COGS",))
@dataclass(kw_only=True, eq=False)
class Cogs(PairCorpus):
    """Sentence -> logical form, from the published files (Kim & Linzen, 2020, arXiv:2010.05465):
    https://github.com/najoungkim/COGS, directory `data`.

    train.tsv (24,155 pairs), dev.tsv (3,000; here `valid`), test.tsv (3,000) and gen.tsv (21,000),
    whose sentences have words and structures in places where training never has them; each may be
    packed as .gz. gen.2020.tsv is another name of the last, for the version before its correction
    in 2022, which published results are on.
    """

    splits = tuple(FILES)

    path: str  # the directory with the published files

    @cached_property
    def files(self) -> dict[str, Path]:
        return {split: _file(self.path, self.at("path"), split) for split in FILES}

    @classmethod
    def check(cls, options, context):
        for split in FILES:
            try:
                next(_rows(_file(options.path, "path", split), "path", files.HEAD))
            except ConfigError as error:
                yield from error.faults
                if not Path(options.path).expanduser().is_dir():
                    return

    def stamp(self) -> list[Any]:
        return [*super().stamp(), files.stamp(self.files.values())]

    def size(self) -> int:
        return files.size(self.files.values())

    def pairs(self, split: str) -> TextPairs:
        for sentence, form, _ in _rows(self.files[split], self.at("path")):
            yield sentence, form

    def kinds(self, split: str) -> list[str]:
        """Of each pair, in order: in_distribution, primitive, or the case of the generalisation
        set.
        """
        return [kind for _, _, kind in _rows(self.files[split], self.at("path"))]


def _file(path: str, at: str, split: str) -> Path:
    """The file of a split. Raises ConfigError, at the config path `at`, if there is none."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise refused(
            at,
            "must be the directory with COGS' train.tsv, dev.tsv, test.tsv and gen.tsv",
            f"'{path}', which is no directory",
            f"Get them from {HOME}.",
        )
    names = [f"{name}.tsv{packed}" for name in FILES[split] for packed in ("", ".gz")]
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        there = ", ".join(sorted(file.name for file in folder.iterdir())[:4])
        raise refused(
            at,
            f"must hold {' or '.join(names)}",
            f"'{path}' with {there or 'nothing'}",
            f"Get it from {HOME}.",
        )
    return found[0]


def _rows(file: Path, at: str, at_most: int | None = None) -> Iterator[list[str]]:
    """The fields of each line. Raises ConfigError with the first line that has others."""
    number = 0
    for number, line in enumerate(files.lines(file, at, at_most), 1):
        fields = line.split("\t")
        if len(fields) != 3:
            raise refused(
                at, f"each line must hold {FIELDS}", f"{len(fields)} in '{file}', line {number:,}"
            )
        yield fields
    if not number:
        raise refused(at, "must hold pairs", f"'{file}', which is empty", "Get the file again.")
