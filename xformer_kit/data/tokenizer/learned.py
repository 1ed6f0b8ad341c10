"""Tokenizers of word pieces, fitted on the training split: bpe, unigram, wordpiece."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Literal

from xformer_kit.data.plain import Plain
from xformer_kit.data.tokenizer.base import TOKENIZERS
from xformer_kit.data.tokenizer.library import LibraryTokenizer, from_data, tokenizers_library
from xformer_kit.data.tokenizer.texts import first_few, sample, whole_words
from xformer_kit.registry import Faults, Options, at_least, at_most, config_error
from xformer_kit.registry.messages import in_open_range

MAX_VOCAB_SIZE = 2**24  # the library allocates 70 bytes for each before it reads a text
SPACE = "\u2581"  # SentencePiece's sign for a space


@TOKENIZERS.register("bpe", also_called=("byte_bpe", "byte_pair"))
@dataclass(kw_only=True, eq=False)
class BPE(LibraryTokenizer):
    """Byte pairs merged by frequency, within words, over all 256 bytes (Sennrich et al., 2016,
    arXiv:1508.07909; over bytes: Radford et al., 2019, section 2.2). Any bytes can be encoded and
    decode unchanged.

    Fitted on the training split by the library `tokenizers`, and saved as its `tokenizer.json`. A
    small text yields fewer tokens than `vocab_size`, which is then set to their number.
    """

    fit_splits = ("train",)
    min_vocab_size = 256  # the bytes
    types = (None, "ByteLevel", "BPE", "ByteLevel")

    vocab_size: int = 2048  # tokens: the 256 bytes and the merges

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "tokens, the 256 bytes and one merge", vocab_size=257)
        yield from at_most(options, "tokens", vocab_size=MAX_VOCAB_SIZE)

    def fit(self, texts: Iterable[str]) -> None:
        tokenizers = tokenizers_library()
        level = tokenizers.pre_tokenizers.ByteLevel
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = level(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            initial_alphabet=sorted(level.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(whole_words(texts), trainer)
        self.adopt(tokenizer)

    @classmethod
    def recognises(cls, data: Plain) -> bool:
        step = data.get("pre_tokenizer") or {}
        options = step.get("add_prefix_space"), step.get("use_regex")
        return super().recognises(data) and options == (False, True)


@TOKENIZERS.register("unigram", similar=("sentencepiece", "spm"))
@dataclass(kw_only=True, eq=False)
class Unigram(LibraryTokenizer):
    """The most probable segmentation into pieces, each with its own probability (Kudo, 2018,
    arXiv:1804.10959, section 3.2).

    As in SentencePiece (Kudo and Richardson, 2018, arXiv:1808.06226), a space belongs to the word
    after it, a piece does not mix letters with digits or marks, and rare characters are encoded as
    bytes. Unlike in SentencePiece, text is not normalized, so that any bytes can be encoded and
    decode unchanged.
    """

    fit_splits = ("train",)
    min_vocab_size = 257  # `<unk>` and the bytes
    types = ("Sequence", "Split", "Unigram", "Sequence")
    # bytes that are not utf-8, and text that the library decodes as a space
    byte_encoded = re.compile(f"[\udc80-\udcff{SPACE}]")

    vocab_size: int = 2048  # tokens: `<unk>`, the 256 bytes, characters and pieces
    # fraction of the characters in the text that have their own tokens
    coverage: float = 0.9995
    sample: int = 2_000_000  # characters to fit on, spread over the training split

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "tokens, with the 256 bytes", vocab_size=300)
        yield from at_most(options, "tokens", vocab_size=MAX_VOCAB_SIZE)
        yield from _sample_faults(options)

    def fit(self, texts: Iterable[str]) -> None:
        tokenizers = tokenizers_library()
        other = rf"{SPACE}*[^{SPACE}\n\p{{L}}\p{{M}}\p{{N}}]+"
        regex = rf"\n|{SPACE}*[\p{{L}}\p{{M}}]+|{SPACE}*\p{{N}}+|{other}|{SPACE}+"
        tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
        normal, decoders = tokenizers.normalizers, tokenizers.decoders
        tokenizer.normalizer = normal.Sequence([normal.Prepend(SPACE), normal.Replace(" ", SPACE)])
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(
            tokenizers.Regex(regex), "isolated"
        )
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace(SPACE, " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        covered, alphabet = _replace_rare(sample(texts, self.sample), self.coverage, excluded=SPACE)
        alphabet |= {"\n"}
        _check_vocab_size(
            self.vocab_size,
            257 + len(alphabet - {" "}) + 1,
            "`<unk>`, the 256 bytes and the characters of the text",
        )
        trainer = tokenizers.trainers.UnigramTrainer(
            vocab_size=self.vocab_size - 256,
            unk_token="<unk>",
            special_tokens=["<unk>"],
            initial_alphabet=[SPACE, "\n"],
            show_progress=False,
        )
        # the trainer does not support an empty text
        tokenizer.train_from_iterator(covered if any(covered) else [" \n"], trainer)
        words = _deterministic(json.loads(tokenizer.to_str())["model"]["vocab"])
        byte_tokens = [(f"<0x{byte:02X}>", words[-1][1]) for byte in range(256)]
        tokenizer.model = tokenizers.models.Unigram(
            [("<unk>", 0.0), *byte_tokens, *words], unk_id=0, byte_fallback=True
        )
        self.adopt(_without_added(tokenizer))

    @classmethod
    def recognises(cls, data: Plain) -> bool:
        if not super().recognises(data):
            return False
        pattern = data["pre_tokenizer"].get("pattern") or {}
        return pattern.get("Regex", "").startswith(rf"\n|{SPACE}*[")


@TOKENIZERS.register("wordpiece", also_called=("word_piece",))
@dataclass(kw_only=True, eq=False)
class WordPiece(LibraryTokenizer):
    """The longest known pieces of each word, `##` before those inside it, as in BERT (Wu et al.,
    2016, arXiv:1609.08144, section 4.1; Devlin et al., 2019, arXiv:1810.04805).

    White space is not kept, and each punctuation mark is a separate word. A word with a character
    that is not in the training text becomes `[UNK]`, id 0, which `count_unknown` counts; with
    unknown=error it is an error instead, and there is no such token.
    """

    fit_splits = ("train",)
    types = ("BertNormalizer", "BertPreTokenizer", "WordPiece", "WordPiece")

    vocab_size: int = 2048  # tokens: `[UNK]`, characters and pieces
    # converts letters to lower case without accents, as in BERT's uncased models
    lowercase: bool = False
    # a word that cannot be encoded: an error, or `[UNK]`
    unknown: Literal["error", "token"] = "token"
    coverage: float = 1.0  # fraction of the characters in the text that are in the alphabet
    sample: int = 10_000_000  # characters to fit on, spread over the training split

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "tokens", vocab_size=2)
        yield from at_most(options, "tokens", vocab_size=MAX_VOCAB_SIZE)
        yield from _sample_faults(options)

    def fit(self, texts: Iterable[str]) -> None:
        tokenizers = tokenizers_library()
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
            lowercase=self.lowercase, strip_accents=self.lowercase
        )
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = tokenizers.decoders.WordPiece()
        covered, _ = _replace_rare(sample(texts, self.sample), self.coverage)
        first, inside = _letters(tokenizer, covered)
        _check_vocab_size(
            self.vocab_size,
            1 + len(first | inside) + len(inside),
            "`[UNK]` and the characters of the text, twice",
        )
        trainer = tokenizers.trainers.WordPieceTrainer(
            vocab_size=self.vocab_size,
            # Sorted: otherwise the order of a hash table decides between equally frequent merges.
            special_tokens=["[UNK]", *sorted("##" + letter for letter in inside)],
            limit_alphabet=MAX_VOCAB_SIZE,
            show_progress=False,
        )
        tokenizer.train_from_iterator(covered, trainer)
        names = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)[self.unknown == "error" :]
        tokenizer.model = tokenizers.models.WordPiece(
            {name: i for i, name in enumerate(names)}, unk_token="[UNK]"
        )
        self.adopt(_without_added(tokenizer))

    def _encoding_error(self, texts: list[str], error: Exception) -> Exception:
        words = sorted(
            {word for t in texts for word in _words(self.library, t) if not self._can_encode(word)}
        )
        return config_error(
            "tokenizer",
            f"the {self.vocab_size} tokens of 'wordpiece' must spell every word",
            first_few(map(repr, words)),
            "Leave them out of the text, or train with tokenizer.unknown=token.",
        )

    def _can_encode(self, word: str) -> bool:
        try:
            return bool(self.library.model.tokenize(word))
        except Exception:  # the library raises nothing more specific
            return False


def _sample_faults(options: Options) -> Faults:
    """Yields the faults of `coverage` and `sample`."""
    yield from in_open_range(options, "Try 0.9995.", closed=True, coverage=(0, 1))
    yield from at_least(options, "characters", sample=1000)


def _check_vocab_size(vocab_size: int, needed: int, contents: str) -> None:
    """Raises ConfigError if the vocabulary is too small for the characters of the text."""
    if vocab_size < needed:
        raise config_error(
            "tokenizer.vocab_size",
            f"must hold {contents}, {needed} tokens",
            f"{vocab_size}",
            f"Try {max(2 * needed, 1024)}, or a smaller tokenizer.coverage.",
        )


def _replace_rare(
    texts: list[str], coverage: float, excluded: str = ""
) -> tuple[list[str], set[str]]:
    """Returns the texts with a line end in place of each character that is in `excluded` or is too
    rare to be covered, and the set of the other characters.
    """
    counts = Counter(chain.from_iterable(texts))
    for character in excluded:
        del counts[character]
    kept: set[str] = set()
    remaining = coverage * counts.total()
    for character in sorted(counts, key=lambda c: (-counts[c], c)):
        if remaining <= 0:
            break
        kept.add(character)
        remaining -= counts[character]
    rare = dict.fromkeys(map(ord, {*counts, *excluded} - kept), "\n")
    return [text.translate(rare) for text in texts] if rare else texts, kept


def _words(tokenizer: Any, text: str) -> list[str]:
    """Returns the words of a text, from a tokenizer's normalizer and pre-tokenizer."""
    words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))
    return [word for word, _ in words]


def _letters(tokenizer: Any, texts: list[str]) -> tuple[set[str], set[str]]:
    """Returns the characters that begin words, and those inside words, after the normalizer."""
    pairs = {"".join(pair) for text in texts for pair in pairwise(f" {text}")}
    words = {word for pair in pairs for word in _words(tokenizer, pair)}
    return {word[0] for word in words}, {letter for word in words for letter in word[1:]}


def _deterministic(vocabulary: list[list[Any]]) -> list[tuple[str, float]]:
    """Returns the pieces and their scores, the most probable first, without what depends on the
    order of a hash table: the last digits, and the steps of 0.0001 between unused characters.
    """
    scores = {name: score for name, score in vocabulary if name != "<unk>"}
    least = min(scores.values())
    unused = least + 1e-4 * sum(len(name) == 1 for name in scores)  # largest score of one
    for name, score in scores.items():
        scores[name] = round(least if len(name) == 1 and score <= unused else score, 6)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _without_added(tokenizer: Any) -> Any:
    """Returns the tokenizer without added tokens, so that texts are not searched for the trainer's
    special tokens.
    """
    return from_data({**json.loads(tokenizer.to_str()), "added_tokens": []})
