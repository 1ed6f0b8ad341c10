"""The corpus COGS: English sentences and their logical forms."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from xformer_kit.data import files
from xformer_kit.data.corpus.base import CORPORA, PairCorpus, TextPairs
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.text.user_path import user_path

FILES = {"train": ("train",), "valid": ("dev",), "test": ("test",), "gen": ("gen", "gen.2020")}
DOWNLOAD = "https://github.com/najoungkim/COGS, directory data"


@CORPORA.register("cogs", also_called=("COGS",))
@dataclass(kw_only=True, eq=False)
class Cogs(PairCorpus):
    """Sentence -> logical form, from the published files (Kim & Linzen, 2020, arXiv:2010.05465):
    https://github.com/najoungkim/COGS, directory `data`.

    train.tsv (24,155 pairs), dev.tsv (3,000; here `valid`), test.tsv (3,000) and gen.tsv (21,000),
    whose sentences have words and structures in positions in which training does not have them;
    each may be compressed as .gz. The file gen may also be gen.2020.tsv, the version before its
    correction in 2022, on which published results are.
    """

    splits = tuple(FILES)

    path: str  # the directory with the published files

    @cached_property
    def files(self) -> dict[str, Path]:
        """Split -> its file."""
        return {split: _file(self.path, self.option_path("path"), split) for split in FILES}

    @classmethod
    def check(cls, options, context):
        for split in FILES:
            try:
                next(_pairs(_file(options.path, "path", split), "path", files.HEAD_BYTES), None)
            except ConfigError as error:
                yield from error.faults
                return

    def stamp(self) -> list[Any]:
        return [*super().stamp(), files.stamp(self.files.values())]

    def size(self) -> int:
        return files.size(self.files.values())

    def pairs(self, split: str) -> TextPairs:
        return _pairs(self.files[split], self.option_path("path"))


def _file(path: str, config_path: str, split: str) -> Path:
    """Returns the file of a split. Raises ConfigError, at `config_path`, if there is none."""
    names = [f"{name}.tsv{suffix}" for name in FILES[split] for suffix in ("", ".gz")]
    existing = [*filter(Path.is_file, (user_path(path) / name for name in names))]
    if not existing:
        raise config_error(
            config_path,
            f"must be a directory with COGS' {' or '.join(names)}",
            f"'{path}'",
            f"Get it from {DOWNLOAD}.",
        )
    return existing[0]


def _pairs(file: Path, config_path: str, max_bytes: int | None = None) -> TextPairs:
    """Yields the sentence and the logical form of each line. Raises ConfigError for the first line
    with more or fewer than three fields.
    """
    for number, line in enumerate(files.lines(file, config_path, max_bytes), 1):
        fields = line.split("\t")
        if len(fields) != 3:
            raise config_error(
                config_path,
                "each line must hold a sentence, its logical form and its kind, between tabs",
                f"{len(fields)} in '{file}', line {number:,}",
            )
        yield fields[0], fields[1]
