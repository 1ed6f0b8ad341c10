"""How does a tokenizer come to know its tokens? It is fitted on a corpus, once, and kept beside
what it encodes.
"""

from dataclasses import dataclass
from pathlib import Path

from xformer_kit.data import cache
from xformer_kit.data.corpus import Corpus
from xformer_kit.data.meter import Meter
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer, load_tokenizer

TARGET, SOURCE = (
    "tokenizer.json",
    "source_tokenizer.json",
)  # the second where sources have a tokenizer of their own


@dataclass(frozen=True)
class Learned:
    """Tokenizers that were fitted on several corpora together."""

    folder: Path
    fingerprint: str
    one: bool  # for both sides of pairs

    def saved(self, folder: Path) -> list[Tokenizer]:
        """The tokenizers, also written into another folder: what lies there can be read by
        itself.
        """
        found = kept(self.folder, self.one)
        return _saved(folder, [found[0]] if self.one else [*found])


def fitted(folder: Path, corpus: Corpus, tokenizers: list[Tokenizer]) -> list[Tokenizer]:
    """The tokenizers, fitted on a corpus and written into a folder: one, or one for the targets and
    one for the sources.
    """
    sides = (None,) if len(tokenizers) == 1 else ("target", "source")
    for tokenizer, side in zip(tokenizers, sides, strict=True):
        if tokenizer.learns_from:
            what = (
                f"Learning the tokens of '{_name(tokenizer)}'{f' on the {side}s' if side else ''}"
            )
            with Meter(what, corpus.size() // len(sides)) as meter:
                # all splits, or only training
                there = corpus.splits if "valid" in tokenizer.learns_from else tokenizer.learns_from
                of = () if side is None else (side,)
                said = (corpus.texts(split, *of) for split in there)
                tokenizer.fit(meter(text for texts in said for text in texts))
    return _saved(folder, tokenizers)


def kept(folder: Path, one: bool) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of targets and of sources that lie in a folder: twice the same object where
    there is `one`.
    """
    target = load_tokenizer(folder / TARGET)
    return target, target if one else load_tokenizer(folder / SOURCE)


def _saved(folder: Path, tokenizers: list[Tokenizer]) -> list[Tokenizer]:
    with cache.writing(folder.parent):
        for tokenizer, name in zip(tokenizers, (TARGET, SOURCE), strict=False):
            tokenizer.save(folder / name)
    return tokenizers


def _name(tokenizer: Tokenizer) -> str:
    return next(name for name, part in TOKENIZERS.items() if part is type(tokenizer))
