"""Tokenizers that are fitted once on a corpus and saved next to the ids of its text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xformer_kit.data import cache
from xformer_kit.data.corpus import Corpus
from xformer_kit.data.plain import Plain
from xformer_kit.data.preparation.progress import reading_progress
from xformer_kit.data.preparation.user_code import check_tokenizer
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer, load_tokenizer
from xformer_kit.data.tokenizer.pretrained import saved_or_pretrained


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
        tokenizers = self.create()
        hashes = dict.fromkeys(t.file_hash for t in tokenizers if t.file_hash is not None)
        each = ["each"] * (len(self.files) - 1)
        code = cache.code_hash(type(tokenizers[0]))
        return [self.node, code, *each, *hashes]

    @property
    def fit_splits(self) -> tuple[str, ...]:
        """Splits on which they are fitted: none if they are loaded from files."""
        return TOKENIZERS[self.node["name"]].fit_splits

    def create(self) -> list[Tokenizer]:
        """Returns the tokenizers of the config, not fitted, or those of tokenizer.path."""
        if self.node["name"] == "pretrained":
            return [saved_or_pretrained(self.node["path"], file) for file in self.files]
        return [TOKENIZERS.create(self.node) for _ in self.files]

    def fit(self, folder: Path, corpus: Corpus) -> list[Tokenizer]:
        """Fits new tokenizers on a corpus and saves them in a folder."""
        tokenizers = self.create()
        sides = ((),) if len(tokenizers) == 1 else (("target",), ("source",))
        for tokenizer, side in zip(tokenizers, sides, strict=True):
            if self.fit_splits:
                on = "".join(f" on the {name}s" for name in side)
                title = f"Learning the tokens of '{self.node['name']}'{on}"
                # all splits, or only training
                splits = corpus.splits if "valid" in self.fit_splits else self.fit_splits
                with reading_progress(title, corpus.size() // len(sides)) as progress:
                    tokenizer.fit(
                        progress(text for split in splits for text in corpus.texts(split, *side))
                    )
            check_tokenizer(tokenizer, iter(corpus.texts("train", *side)))
        return self.save(folder, tokenizers)

    def save(self, folder: Path, tokenizers: list[Tokenizer]) -> list[Tokenizer]:
        with cache.write_errors(folder.parent):
            for tokenizer, file in zip(tokenizers, self.files, strict=True):
                tokenizer.save(folder / file)
        return tokenizers

    def load(self, folder: Path) -> list[Tokenizer]:
        return [load_tokenizer(folder / file) for file in self.files]
