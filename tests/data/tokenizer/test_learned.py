"""unigram and wordpiece have the library's ids and texts, are reproducible, and report unknown
text.
"""

import itertools
import json

import numpy as np
import pytest

from tests.messages import messages
from xformer_kit.data.tokenizer import TOKENIZERS, Unigram, WordPiece, load_tokenizer
from xformer_kit.data.tokenizer.texts import sample
from xformer_kit.registry import ConfigError, Context

PROSE = (
    "The quick brown fox jumps over the lazy dog; it doesn't stop.\n    Naïve café, 1234 times!\n"
    * 30
)


def learned(kind, text=PROSE, **options):
    tokenizer = kind(**{"vocab_size": 400} | options)
    tokenizer.fit([text])
    return tokenizer


@pytest.mark.parametrize("kind", [Unigram, WordPiece])
def test_ids_and_text_are_those_of_the_library(kind, tmp_path):
    import tokenizers

    ours = learned(kind)
    ours.save(tmp_path / "tokenizer.json")
    library_tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = ours.encode(PROSE).tolist()
    assert library_tokenizer.encode(PROSE).ids == ids
    assert library_tokenizer.decode(ids) == ours.decode(ids)
    assert ours.vocab_size == library_tokenizer.get_vocab_size() <= 400


@pytest.mark.parametrize("kind", [Unigram, WordPiece])
def test_the_same_text_gives_the_same_file(kind):
    """The library's own trainers depend on the order of a hash table."""
    assert (
        len({learned(kind, vocab_size=size).library.to_str() for size in (350, 350, 350, 350)}) == 1
    )


@pytest.mark.parametrize("kind", [Unigram, WordPiece])
def test_it_does_not_matter_where_the_text_is_cut(kind):
    cut = kind(vocab_size=350)
    cut.fit(list(PROSE))
    assert cut.library.to_str() == learned(kind, vocab_size=350).library.to_str()


@pytest.mark.parametrize("word", ["low", "lowest", "newlow", "lowlowe"])
def test_unigram_finds_the_likeliest_pieces(word):
    """The most probable segmentation of a word (Kudo, 2018, equation 1 and section 3.2)."""
    tokenizer = learned(Unigram, "low lower lowest newer wider " * 50, vocab_size=290)
    score = dict(json.loads(tokenizer.library.to_str())["model"]["vocab"])
    text = f"\u2581{word}"
    ways = []
    for cuts in itertools.product([False, True], repeat=len(word)):
        ends = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(ends)]
        if all(piece in score for piece in pieces):
            ways.append(sum(score[piece] for piece in pieces))
    chosen = tokenizer.library.encode(word).tokens
    assert sum(score[piece] for piece in chosen) == pytest.approx(max(ways)) and len(ways) > 1


def test_unigram_encodes_an_unknown_character_as_bytes():
    tokenizer = learned(Unigram)
    ids = tokenizer.encode("fox 🙂")
    assert tokenizer.library.encode("fox 🙂").tokens[-4:] == [
        "<0xF0>",
        "<0x9F>",
        "<0x99>",
        "<0x82>",
    ]
    assert tokenizer.decode(ids) == "fox 🙂" and tokenizer.count_unknown(ids) == 0
    stream = tokenizer.stream()
    assert [stream(i) for i in ids[-4:].tolist()] == ["", "", "", "🙂"]


@pytest.mark.parametrize(
    "text",
    ["\u2581", "a\u2581b", "<0x41>", "x<0x41>", "<unk>", "  two", " \u2581 ", "<0x4", "a\r\n b"],
)
def test_unigram_encodes_its_reserved_strings_as_text(text):
    tokenizer = learned(Unigram, PROSE + "<0x41> <unk> \u2581 " * 50)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.count_unknown(tokenizer.encode(text)) == 0


def test_rare_characters_get_no_token_of_their_own():
    text = "ab " * 10_000 + "é"
    assert learned(Unigram, text).library.token_to_id("é") is None
    assert learned(Unigram, text, coverage=1.0).library.token_to_id("é") is not None


def test_a_vocabulary_smaller_than_the_alphabet():
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 100)))
    with pytest.raises(ConfigError) as error:
        learned(Unigram, text, vocab_size=300)
    assert (
        str(error.value)
        == "tokenizer.vocab_size: must hold `<unk>`, the 256 bytes and the characters of the text,"
        " 359 tokens; got 300. Try 1024, or a smaller tokenizer.coverage."
    )
    assert learned(Unigram, text, vocab_size=359).vocab_size == 359
    with pytest.raises(
        ConfigError,
        match=r"^tokenizer\.vocab_size: must hold `\[UNK\]` and the characters of the text,",
    ):
        learned(WordPiece, "".join(map(chr, range(0x430, 0x44A))), vocab_size=40)


def test_the_smallest_vocabulary_of_wordpiece_spells_every_word():
    tokenizer = learned(WordPiece, "ab ac", vocab_size=6)
    assert {tokenizer.library.id_to_token(i) for i in range(6)} == {
        "[UNK]",
        "a",
        "b",
        "c",
        "##b",
        "##c",
    }
    with pytest.raises(ConfigError, match=r"the characters of the text, twice, 6 tokens; got 5\."):
        learned(WordPiece, "ab ac", vocab_size=5)


def test_wordpiece_has_a_token_for_every_letter_of_a_large_alphabet():
    letters = [
        chr(0xAC00 + i) for i in range(300)
    ]  # of Hangul, which BERT does not split into words
    text = " ".join("".join(letters[i : i + 10]) for i in range(0, 300, 10))
    tokenizer = learned(WordPiece, text, vocab_size=1000)
    assert tokenizer.count_unknown(tokenizer.encode(text)) == 0
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", [Unigram, WordPiece])
def test_an_empty_text_can_be_fitted(kind):
    assert learned(kind, "").encode("").tolist() == []


def test_wordpiece_has_the_expected_tokens():
    tokenizer = learned(WordPiece, "un able unable un able stop stopped " * 50, vocab_size=60)
    assert tokenizer.library.encode("unable, stopp!").tokens == [
        "unable",
        "[UNK]",
        "stop",
        "##p",
        "[UNK]",
    ]
    ids = tokenizer.encode("unable stopp stopable")
    assert tokenizer.decode(ids) == "unable stopp stopable"
    starts = tokenizer.word_starts(ids)
    assert starts.sum() == 3 and starts[0]


def test_whole_words_of_wordpiece_are_those_without_a_sign():
    tokenizer = learned(WordPiece, vocab_size=120)
    text = "jumpy; overlazy dog."
    names = tokenizer.library.encode(text).tokens
    assert tokenizer.word_starts(tokenizer.encode(text)).tolist() == [
        not name.startswith("##") for name in names
    ]
    assert "##" in "".join(names) and ";" in names


def test_wordpiece_counts_or_rejects_unknown_words(tmp_path):
    tokenizer = learned(WordPiece)
    ids = tokenizer.encode("the 漢字 fox")
    assert tokenizer.count_unknown(ids) == 2  # each of these characters is a word, as in BERT
    assert tokenizer.decode(ids) == "the [UNK] [UNK] fox"
    strict = learned(WordPiece, unknown="error")
    assert strict.unknown_id is None and strict.encode("the fox").tolist()
    strict.save(tmp_path / "tokenizer.json")
    for one in (strict, load_tokenizer(tmp_path)):
        for encode in (one.encode, lambda text, one=one: list(one.encode_each([text]))):
            with pytest.raises(ConfigError) as error:
                encode("the 漢字 fox Ω")
            assert (
                str(error.value)
                == f"tokenizer: the {strict.vocab_size} tokens of 'wordpiece' must spell every"
                " word; got 'Ω', '字', '漢'. Leave them out of the text, or train with"
                " tokenizer.unknown=token."
            )


def test_lowercase_is_as_in_the_uncased_models():
    tokenizer = learned(WordPiece, lowercase=True)
    assert tokenizer.decode(tokenizer.encode("NAÏVE Café")) == "naive cafe"
    cased = learned(WordPiece)
    assert cased.decode(cased.encode("Naïve café")) == "Naïve café"


@pytest.mark.parametrize("kind", [Unigram, WordPiece])
def test_encode_each_encodes_texts_separately(kind):
    tokenizer = learned(kind)
    texts = ["the fox", "", " dog", "caf\u00e9 \u2581", "it"]
    assert [each.ids.tolist() for each in tokenizer.encode_each(texts)] == [
        tokenizer.encode(text).tolist() for text in texts
    ]


def test_a_sample_is_spread_evenly():
    text = "".join(f"{i:07d} " for i in range(4096))  # 32 Ki characters
    pieces = sample([text], 8192, size=1024)
    assert sum(map(len, pieces)) <= 8192
    at = [text.index(piece) for piece in pieces]
    assert len(set(np.diff(at).round(-2).tolist())) == 1 and at[0] == 0 and at[-1] > len(text) * 0.7
    assert "".join(sample([text], len(text), size=1024)) == text
    assert sample(["x" * 10_000], 1000) == ["x" * 1000]


@pytest.mark.parametrize("name", ["unigram", "wordpiece"])
def test_options_out_of_range(name):
    node = {"name": name, "vocab_size": 1, "coverage": 0.0, "sample": 5}
    faults = messages(TOKENIZERS.faults(node, "tokenizer", Context()))
    assert [fault.split(": ")[0] for fault in faults] == [
        "tokenizer.vocab_size",
        "tokenizer.coverage",
        "tokenizer.sample",
    ]
    assert faults[1] == "tokenizer.coverage: must be above 0 and at most 1; got 0.0. Try 0.9995."


def test_the_file_is_json_of_the_library(tmp_path):
    tokenizer = learned(Unigram)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert (
        json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]["type"]
        == "Unigram"
    )
