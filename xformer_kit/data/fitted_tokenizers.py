"""Tokenizers that are fitted on a corpus, once, and saved next to the ids that they encode."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xformer_kit.data import cache
from xformer_kit.data.corpus import Corpus
from xformer_kit.data.plain import Plain
from xformer_kit.data.progress import ReadingProgress
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer, load_tokenizer


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a config for a corpus: one, or one for the targets of pairs and one for the
    sources.
    """

    node: dict[str, Any]  # complete
    files: tuple[str, ...]

    @classmethod
    def of(cls, config: Plain, corpus: Corpus) -> "Tokenizers":
        node = TOKENIZERS.complete(config["tokenizer"])
        one = node.pop("shared", True) or corpus.form != "pairs"
        return cls(node, ("tokenizer.json", "source_tokenizer.json")[: 1 if one else 2])

    def known(self) -> list[Any]:
        """Values that the ids of a text depend on, besides the text."""
        content = TOKENIZERS.create(self.node).content
        each = ["each"] * (len(self.files) - 1)
        code = cache.code_of(TOKENIZERS[self.node["name"]])
        return [self.node, code, *each, *([] if content is None else [content])]

    def fit(self, folder: Path, corpus: Corpus) -> list[Tokenizer]:
        """New tokenizers, fitted on a corpus and written into a folder."""
        found = [TOKENIZERS.create(self.node) for _ in self.files]
        sides = ((),) if len(found) == 1 else (("target",), ("source",))
        for tokenizer, side in zip(found, sides, strict=True):
            if tokenizer.learns_from:
                on = "".join(f" on the {name}s" for name in side)
                what = f"Learning the tokens of '{self.node['name']}'{on}"
                # all splits, or only training
                there = corpus.splits if "valid" in tokenizer.learns_from else tokenizer.learns_from
                with ReadingProgress(what, corpus.size() // len(sides)) as progress:
                    tokenizer.fit(
                        progress(text for split in there for text in corpus.texts(split, *side))
                    )
        return self.save(folder, found)

    def save(self, folder: Path, tokenizers: list[Tokenizer]) -> list[Tokenizer]:
        with cache.writing(folder.parent):
            for tokenizer, file in zip(tokenizers, self.files, strict=True):
                tokenizer.save(folder / file)
        return tokenizers

    def load(self, folder: Path) -> list[Tokenizer]:
        return [load_tokenizer(folder / file) for file in self.files]
