"""Tokenizers that are fitted once on a corpus and saved next to the ids of its text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xformer_kit.data import cache
from xformer_kit.data.corpus import Corpus
from xformer_kit.data.plain import Plain
from xformer_kit.data.progress import reading_progress
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer, load_tokenizer


@dataclass(frozen=True)
class FittedTokenizers:
    """Fits, saves and loads the tokenizers of a config: one, or for pairs one for the targets and
    one for the sources.
    """

    node: Plain  # config of the tokenizer, with all options
    files: tuple[str, ...]  # names of their files

    @classmethod
    def of(cls, config: Plain, corpus: Corpus) -> "FittedTokenizers":
        node = TOKENIZERS.complete(config["tokenizer"])
        shared = node.pop("shared", True) or corpus.form != "pairs"
        return cls(node, ("tokenizer.json", "source_tokenizer.json")[: 1 if shared else 2])

    def fingerprint_values(self) -> list[Any]:
        """Returns the values that the ids of a text depend on, without the text."""
        file_hash = TOKENIZERS.create(self.node).file_hash
        each = ["each"] * (len(self.files) - 1)
        code = cache.code_hash(TOKENIZERS[self.node["name"]])
        return [self.node, code, *each, *([] if file_hash is None else [file_hash])]

    def fit(self, folder: Path, corpus: Corpus) -> list[Tokenizer]:
        """Fits new tokenizers on a corpus and saves them in a folder."""
        tokenizers = [TOKENIZERS.create(self.node) for _ in self.files]
        sides = ((),) if len(tokenizers) == 1 else (("target",), ("source",))
        for tokenizer, side in zip(tokenizers, sides, strict=True):
            if tokenizer.fit_splits:
                on = "".join(f" on the {name}s" for name in side)
                title = f"Learning the tokens of '{self.node['name']}'{on}"
                # all splits, or only training
                splits = corpus.splits if "valid" in tokenizer.fit_splits else tokenizer.fit_splits
                with reading_progress(title, corpus.size() // len(sides)) as progress:
                    tokenizer.fit(
                        progress(text for split in splits for text in corpus.texts(split, *side))
                    )
        return self.save(folder, tokenizers)

    def save(self, folder: Path, tokenizers: list[Tokenizer]) -> list[Tokenizer]:
        with cache.write_errors(folder.parent):
            for tokenizer, file in zip(tokenizers, self.files, strict=True):
                tokenizer.save(folder / file)
        return tokenizers

    def load(self, folder: Path) -> list[Tokenizer]:
        return [load_tokenizer(folder / file) for file in self.files]
