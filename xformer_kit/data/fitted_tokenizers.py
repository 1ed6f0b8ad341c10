"""Tokenizers that are fitted on a corpus, once, and saved next to the ids that they encode."""

from dataclasses import dataclass
from pathlib import Path

from xformer_kit.data import cache
from xformer_kit.data.corpus import Corpus
from xformer_kit.data.progress import ReadingProgress
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer, load_tokenizer

TARGET = "tokenizer.json"
SOURCE = "source_tokenizer.json"  # if sources have a tokenizer of their own


@dataclass(frozen=True)
class Learned:
    """Tokenizers that were fitted on several corpora together."""

    folder: Path
    fingerprint: str
    one: bool  # for both sides of pairs

    def saved(self, folder: Path) -> list[Tokenizer]:
        """The tokenizers, also written into another folder, which then needs no other."""
        return _saved(folder, [*kept(self.folder, self.one)][: 1 if self.one else 2])


def fitted(folder: Path, corpus: Corpus, tokenizers: list[Tokenizer]) -> list[Tokenizer]:
    """The tokenizers, fitted on a corpus and written into a folder: one, or one for the targets and
    one for the sources.
    """
    sides = (None,) if len(tokenizers) == 1 else ("target", "source")
    for tokenizer, side in zip(tokenizers, sides, strict=True):
        if tokenizer.learns_from:
            name = TOKENIZERS.name_of(type(tokenizer))
            what = f"Learning the tokens of '{name}'{f' on the {side}s' if side else ''}"
            with ReadingProgress(what, corpus.size() // len(sides)) as progress:
                # all splits, or only training
                there = corpus.splits if "valid" in tokenizer.learns_from else tokenizer.learns_from
                of = () if side is None else (side,)
                tokenizer.fit(
                    progress(text for split in there for text in corpus.texts(split, *of))
                )
    return _saved(folder, tokenizers)


def kept(folder: Path, one: bool) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of targets and of sources in a folder: the same object if there is `one`."""
    target = load_tokenizer(folder / TARGET)
    return target, target if one else load_tokenizer(folder / SOURCE)


def _saved(folder: Path, tokenizers: list[Tokenizer]) -> list[Tokenizer]:
    with cache.writing(folder.parent):
        for tokenizer, name in zip(tokenizers, (TARGET, SOURCE), strict=False):
            tokenizer.save(folder / name)
    return tokenizers
