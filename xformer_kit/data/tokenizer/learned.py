"""Tokenizers of word pieces, learned from the training split: bpe, unigram, wordpiece."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Literal

from xformer_kit.data.plain import Plain
from xformer_kit.data.refused import refused
from xformer_kit.data.tokenizer.base import TOKENIZERS
from xformer_kit.data.tokenizer.library import Library, library
from xformer_kit.data.tokenizer.texts import first_few, sample, whole_words
from xformer_kit.registry import Fault, at_least
from xformer_kit.registry.messages import inside

SPACE = "\u2581"  # SentencePiece's sign for a space


@TOKENIZERS.register("bpe", also_called=("byte_bpe", "byte_pair"))
@dataclass(kw_only=True, eq=False)
class BPE(Library):
    """Byte pairs merged by frequency, within words, over all 256 bytes (Sennrich et al., 2016,
    arXiv:1508.07909; over bytes: Radford et al., 2019, section 2.2). Any bytes can be encoded and
    come back unchanged.

    Learned from the training split by the library `tokenizers`; the file is that library's own
    `tokenizer.json`. A small text yields fewer tokens than `vocab_size`, which is then their
    number.
    """

    learns_from = ("train",)
    fewest = 256  # the bytes
    types = (None, "ByteLevel", "BPE", "ByteLevel")

    vocab_size: int = 2048  # tokens: the 256 bytes and the merges

    @classmethod
    def check(cls, options, context):
        if not 257 <= options.vocab_size <= 2**31 - 1:
            yield Fault(
                "vocab_size",
                "must be at least 257, the 256 bytes and one merge",
                got=options.vocab_size,
                fix="Try 4096, or tokenizer=byte.",
            )

    def fit(self, texts: Iterable[str]) -> None:
        tokenizers = library()
        level = tokenizers.pre_tokenizers.ByteLevel
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = level(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            initial_alphabet=sorted(level.alphabet()),
            show_progress=False,
        )
        made.train_from_iterator(whole_words(texts), trainer)
        self.adopt(made)

    @classmethod
    def recognises(cls, data: Plain) -> bool:
        if not super().recognises(data):
            return False
        level = data["pre_tokenizer"]
        return (level.get("add_prefix_space"), level.get("use_regex")) == (False, True)


@TOKENIZERS.register("unigram", also_called=("sentencepiece", "spm"))
@dataclass(kw_only=True, eq=False)
class Unigram(Library):
    """The likeliest pieces of a text, each with a probability of its own (Kudo, 2018,
    arXiv:1804.10959, section 3.2).

    As in SentencePiece (Kudo and Richardson, 2018, arXiv:1808.06226): a space belongs to the word
    after it, a piece mixes no letters with digits or marks, and characters too rare for a token
    are spelled in bytes. Unlike it, nothing is
    normalised: any bytes can be encoded and come back unchanged.
    """

    learns_from = ("train",)
    fewest = 257  # `<unk>` and the bytes
    types = ("Sequence", "Split", "Unigram", "Sequence")
    # bytes that are no utf-8, and text that the library would read as a space or as a byte
    apart = re.compile(f"[\udc80-\udcff{SPACE}]|<(?=0x[0-9A-F]{{2}}>|unk>)")

    vocab_size: int = 2048  # tokens: `<unk>`, the 256 bytes, characters and pieces
    # fraction of the characters in the text that a token of their own covers
    coverage: float = 0.9995
    sample: int = 2_000_000  # characters to learn from, spread over the training split

    @classmethod
    def check(cls, options, context):
        if not 300 <= options.vocab_size <= 2**31 - 1:
            yield Fault(
                "vocab_size",
                "must be at least 300, for the 256 bytes and some characters",
                got=options.vocab_size,
                fix="Try 4096, or tokenizer=byte.",
            )
        yield from _sampling(options)

    def fit(self, texts: Iterable[str]) -> None:
        tokenizers = library()
        other = rf"{SPACE}*[^{SPACE}\n\p{{L}}\p{{M}}\p{{N}}]+"
        regex = rf"\n|{SPACE}*[\p{{L}}\p{{M}}]+|{SPACE}*\p{{N}}+|{other}|{SPACE}+"
        made = tokenizers.Tokenizer(tokenizers.models.Unigram())
        normal, decoders = tokenizers.normalizers, tokenizers.decoders
        made.normalizer = normal.Sequence([normal.Prepend(SPACE), normal.Replace(" ", SPACE)])
        made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(regex), "isolated")
        made.decoder = decoders.Sequence(
            [
                decoders.Replace(SPACE, " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        covered, alphabet = _covered(sample(texts, self.sample), self.coverage, apart=SPACE)
        alphabet |= {"\n"}
        _room(
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
        # of an empty text, probabilities are not numbers
        made.train_from_iterator(covered if any(covered) else [" \n"], trainer)
        words = _settled(json.loads(made.to_str())["model"]["vocab"])
        spelled = [(f"<0x{byte:02X}>", words[-1][1]) for byte in range(256)]
        made.model = tokenizers.models.Unigram(
            [("<unk>", 0.0), *spelled, *words], unk_id=0, byte_fallback=True
        )
        self.adopt(_without_added(made))

    @classmethod
    def recognises(cls, data: Plain) -> bool:
        if not super().recognises(data):
            return False
        pattern = data["pre_tokenizer"].get("pattern") or {}
        return pattern.get("Regex", "").startswith(rf"\n|{SPACE}*[")


@TOKENIZERS.register("wordpiece", also_called=("word_piece",))
@dataclass(kw_only=True, eq=False)
class WordPiece(Library):
    """The longest known pieces of each word, `##` before those inside it, as in BERT (Wu et al.,
    2016, arXiv:1609.08144, section 4.1; Devlin et al., 2019, arXiv:1810.04805).

    White space is not kept, and each punctuation mark is a word of its own. A word with a character
    that the training text does not have becomes `[UNK]`, id 0, which `count_unknown` counts; or is
    refused, and then there is no such token.
    """

    learns_from = ("train",)
    types = ("BertNormalizer", "BertPreTokenizer", "WordPiece", "WordPiece")

    vocab_size: int = 2048  # tokens: `[UNK]`, characters and pieces
    # all letters small and without accents, as in BERT's uncased models
    lowercase: bool = False
    # a word that cannot be spelled: refused, or `[UNK]`
    unknown: Literal["error", "token"] = "token"
    coverage: float = 1.0  # fraction of the characters in the text that are in the alphabet
    sample: int = 10_000_000  # characters to learn from, spread over the training split

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "tokens", vocab_size=2)
        yield from _sampling(options)

    def fit(self, texts: Iterable[str]) -> None:
        tokenizers = library()
        made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
        made.normalizer = tokenizers.normalizers.BertNormalizer(
            lowercase=self.lowercase, strip_accents=self.lowercase
        )
        made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        made.decoder = tokenizers.decoders.WordPiece()
        covered, _ = _covered(sample(texts, self.sample), self.coverage)
        first, inside = _letters(made, covered)
        _room(
            self.vocab_size,
            1 + len(first | inside) + len(inside),
            "`[UNK]` and the characters of the text, twice",
        )
        trainer = tokenizers.trainers.WordPieceTrainer(
            vocab_size=self.vocab_size,
            # In this order, else the order of a hash table decides between merges that are equally
            # frequent.
            special_tokens=["[UNK]", *sorted("##" + letter for letter in inside)],
            limit_alphabet=2**31 - 1,
            show_progress=False,
        )
        made.train_from_iterator(covered, trainer)
        names = sorted(made.get_vocab(), key=made.token_to_id)[self.unknown == "error" :]
        made.model = tokenizers.models.WordPiece(
            {name: i for i, name in enumerate(names)}, unk_token="[UNK]"
        )
        self.adopt(_without_added(made))

    def _cannot(self, texts: list[str], error: Exception) -> Exception:
        words = sorted(
            {word for t in texts for word in _words(self.library, t) if not self._known(word)}
        )
        return refused(
            "tokenizer",
            f"the {self.vocab_size} tokens of 'wordpiece' must spell every word",
            first_few(map(repr, words)),
            "Leave them out of the text, or train with tokenizer.unknown=token.",
        )

    def _known(self, word: str) -> bool:
        try:
            return bool(self.library.model.tokenize(word))
        except Exception:  # the library raises nothing more specific
            return False


def _sampling(options: Any) -> Any:
    yield from inside(options, "Try 0.9995.", closed=True, coverage=(0, 1))
    yield from at_least(options, "characters", sample=1000)


def _room(wanted: int, needed: int, what: str) -> None:
    if wanted < needed:
        raise refused(
            "tokenizer.vocab_size",
            f"must hold {what}, {needed} tokens",
            f"{wanted}",
            f"Try {max(2 * needed, 1024)}, or a smaller tokenizer.coverage.",
        )


def _covered(texts: list[str], coverage: float, apart: str = "") -> tuple[list[str], set[str]]:
    """The texts with a line end for each character that is too rare to be covered or is in `apart`;
    and the other characters.
    """
    counts = Counter(chain.from_iterable(texts))
    for character in apart:
        del counts[character]
    kept: set[str] = set()
    room = coverage * counts.total()
    for character in sorted(counts, key=lambda c: (-counts[c], c)):
        if room <= 0:
            break
        kept.add(character)
        room -= counts[character]
    rare = dict.fromkeys(map(ord, {*counts, *apart} - kept), "\n")
    return [text.translate(rare) for text in texts] if rare else texts, kept


def _words(made: Any, text: str) -> list[str]:
    """The words of a text, by a tokenizer's normaliser and pre-tokenizer."""
    words = made.pre_tokenizer.pre_tokenize_str(made.normalizer.normalize_str(text))
    return [word for word, _ in words]


def _letters(made: Any, texts: list[str]) -> tuple[set[str], set[str]]:
    """The characters that begin words, and those inside words, after the normaliser."""
    pairs = {pair for text in texts for pair in pairwise(f" {text}")}
    first: set[str] = set()
    inside: set[str] = set()
    for pair in pairs:
        for word in _words(made, "".join(pair)):
            first.add(word[0])
            inside.update(word[1:])
    return first, inside


def _settled(vocabulary: list[list[Any]]) -> list[tuple[str, float]]:
    """The pieces and their scores, the likeliest first, without the dependence on the order of a
    hash table: the last digits, and the steps of 0.0001 between unused characters.
    """
    scores = {name: score for name, score in vocabulary if name != "<unk>"}
    least = min(scores.values())
    near = least + 1e-4 * sum(len(name) == 1 for name in scores)
    level = {
        name: least if len(name) == 1 and score <= near else score for name, score in scores.items()
    }
    return sorted(
        ((name, round(score, 6)) for name, score in level.items()),
        key=lambda item: (-item[1], item[0]),
    )


def _without_added(made: Any) -> Any:
    """The same tokenizer without added tokens: no text is searched for the trainer's special
    tokens.
    """
    plain = library().Tokenizer(made.model)
    for component in ("normalizer", "pre_tokenizer", "decoder"):
        setattr(plain, component, getattr(made, component))
    return plain
