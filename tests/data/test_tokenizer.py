"""Encoded text decodes unchanged, at once or as a stream, also with a saved tokenizer."""

import functools
import itertools
import json
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.data.tokenizer import (
    BPE,
    TOKENIZERS,
    Byte,
    Char,
    Pretrained,
    Unigram,
    Word,
    WordPiece,
    load_tokenizer,
    whole_words,
)
from xformer_kit.registry import ConfigError, Context, Options

PROSE = (
    "It was the best of times, it was the worst of times.\n\n  Naïve café — 漢字 🙂 don't\t\tstop"
    " 1234\r\n" * 20
)
# What looks like a space, a byte or a special token of the library, but is text.
HARD = st.lists(
    st.sampled_from(
        [" ", "\u2581", "<0x41>", "<unk>", "[UNK]", "##a", "a", "\n", "é", "<", "\t", "."]
    )
).map("".join)
TEXT = st.text(st.characters(exclude_categories=("Cs",)))


SPELLED = ("byte", "bpe", "unigram")  # with a token for each byte
LOSSLESS = ("char", *SPELLED)
SIZED = {"bpe": 300, "unigram": 400, "wordpiece": 200}


def fitted(name, text=PROSE, **options):
    if name in SIZED:
        options = {"vocab_size": SIZED[name]} | options
    tokenizer = TOKENIZERS.create({"name": name} | options)
    tokenizer.fit([text[:50], text[50:]])
    return tokenizer


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request, tmp_path_factory):
    if request.param != "pretrained":
        return fitted(request.param)
    path = tmp_path_factory.mktemp("pretrained") / "tokenizer.json"
    fitted("unigram").library.save(str(path))
    return TOKENIZERS.create({"name": "pretrained", "path": str(path)})


def test_the_text_of_the_fit_decodes_unchanged(tokenizer):
    ids = tokenizer.encode(PROSE)
    assert ids.min() >= 0 and ids.max() < tokenizer.vocab_size and ids.dtype == tokenizer.dtype
    text = tokenizer.decode(ids)
    if isinstance(tokenizer, Word):
        assert text == " ".join(PROSE.split())
    elif isinstance(tokenizer, WordPiece):
        assert "".join(text.split()) == "".join(PROSE.split())
    else:
        assert text == PROSE
    assert tokenizer.encode(text).tolist() == ids.tolist()
    assert tokenizer.count_unknown(ids) == 0
    assert tokenizer.encode(PROSE.encode()).tolist() == ids.tolist()
    assert tokenizer.decode([]) == tokenizer.decode(tokenizer.encode("")) == ""


@pytest.mark.extended
@given(data=st.data())
@settings(deadline=None)
def test_the_bytes_of_a_text_are_those_of_its_tokens(tokenizer, data):
    """White space and unknown characters included, and also if the text is read in pieces."""
    known = isinstance(tokenizer, Char)
    text = data.draw(st.text(sorted(set(PROSE))) if known else HARD | TEXT)
    encoding = tokenizer.encoding(text)
    assert encoding.ids.tolist() == tokenizer.encode(text).tolist()
    assert encoding.bytes == len(text.encode()) and encoding.sizes.min(initial=0) >= 0
    assert encoding.sizes.sum() == (encoding.bytes if len(encoding.ids) else 0)
    if type(tokenizer).__name__.lower() in ("byte", "char", "bpe"):
        assert encoding.sizes.tolist() == [len(tokenizer.join(i)) for i in encoding.ids]
    cut = data.draw(st.integers(0, len(text)))
    pieces = list(tokenizer.encode_all([text[:cut], text[cut:]]))
    assert sum(piece.bytes for piece in pieces) == len(text.encode())


def test_streamed_text_is_the_decoded_text_of_every_kind(tokenizer):
    ids = tokenizer.encode(PROSE).tolist()
    stream = tokenizer.stream()
    assert "".join([stream(i) for i in ids]) + stream.end() == tokenizer.decode(ids)
    head, continuation = tokenizer.decode(ids[:7]), tokenizer.stream(continuation=True)
    streamed = "".join([continuation(ids[7:9]), continuation(ids[9:])]) + continuation.end()
    assert head + streamed == tokenizer.decode(ids)


def test_pieces_of_a_text_are_encoded_as_the_full_text(tokenizer):
    cuts = [0, 3, 60, 61, 700, len(PROSE)]
    texts = [PROSE[a:b] for a, b in itertools.pairwise(cuts)]
    if isinstance(tokenizer, Byte | Char):
        assert (
            np.concatenate([piece.ids for piece in tokenizer.encode_all(texts)]).tolist()
            == tokenizer.encode(PROSE).tolist()
        )
        return
    long = PROSE * 200  # several of the library's pieces
    assert (
        np.concatenate([p.ids for p in tokenizer.encode_all([*texts, PROSE * 199])]).tolist()
        == tokenizer.encode(long).tolist()
    )


def test_special_tokens_are_no_text(tokenizer):
    tokenizer.specials = ("<mask>",)
    try:
        mask = tokenizer.special("<mask>")
        ids = tokenizer.encode(
            "best <mask>" if tokenizer.unknown_id is not None else "best"
        ).tolist()
        assert mask == tokenizer.vocab_size and mask not in ids
        assert tokenizer.decode([mask, *ids, mask]) == tokenizer.decode(ids)
        assert tokenizer.word_starts([mask, *ids, mask]).tolist() == [
            True,
            *tokenizer.word_starts(ids),
            True,
        ]
    finally:
        tokenizer.specials = ()


def test_word_starts_are_the_starts_of_words(tokenizer):
    """The tokens from one word start to the next spell a word."""
    ids = tokenizer.encode(PROSE)
    starts = tokenizer.word_starts(ids)
    assert starts.dtype == bool and starts.shape == ids.shape
    before, *groups = [
        tokenizer.decode(word).strip() for word in np.split(ids, np.flatnonzero(starts))
    ]
    words = [before, *groups] if before else groups  # white space may stand before the first
    if isinstance(tokenizer, WordPiece):
        assert words[:12] == [
            "It",
            "was",
            "the",
            "best",
            "of",
            "times",
            ",",
            "it",
            "was",
            "the",
            "worst",
            "of",
        ]
        assert "'" in words and "Naïve" in words
    else:
        assert words == PROSE.split()


def test_a_tokenizer_can_be_pickled(tokenizer):
    tokenizer.specials = ("<mask>",)
    again = pickle.loads(pickle.dumps(tokenizer))
    tokenizer.specials = ()
    assert again.encode(PROSE).tolist() == tokenizer.encode(PROSE).tolist()
    assert again.specials == ("<mask>",) and again.size == tokenizer.size + 1


@pytest.mark.parametrize("name", SPELLED)
@given(text=TEXT)
@settings(deadline=None)
def test_any_text_round_trips(name, text):
    tokenizer = fitted_once(name)
    assert tokenizer.decode(tokenizer.encode(text)) == text


fitted_once = functools.cache(fitted)  # hypothesis calls a test many times


@pytest.mark.parametrize("name", SPELLED)
@given(data=st.binary() | TEXT.map(str.encode) | HARD.map(str.encode))
@settings(deadline=None)
def test_any_bytes_come_back_from_tokens_that_spell_bytes(name, data):
    tokenizer = fitted_once(name)
    ids = tokenizer.encode(data)
    assert tokenizer.to_bytes(ids) == data
    assert tokenizer.decode(ids) == data.decode("utf-8", "replace")
    stream = tokenizer.stream()
    assert "".join([stream(i) for i in ids]) + stream.end() == tokenizer.decode(ids)


@pytest.mark.extended
@pytest.mark.parametrize("name", sorted(TOKENIZERS.keys() - {"pretrained"}))
@given(ids=st.lists(st.integers(0, 10**6)))
@settings(deadline=None)
def test_any_ids_are_streamed_as_they_are_decoded(name, ids):
    tokenizer = fitted_once(name)
    ids = [i % tokenizer.vocab_size for i in ids]
    stream = tokenizer.stream()
    assert "".join([stream(i) for i in ids]) + stream.end() == tokenizer.decode(ids)
    assert len(tokenizer.word_starts(ids)) == len(ids)


@given(text=TEXT)
def test_char_ids_are_in_the_order_of_code_points(text):
    tokenizer = Char()
    tokenizer.fit([text])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.alphabet == "".join(sorted(set(text)))


def test_a_stream_returns_a_character_when_it_is_complete():
    stream = Byte().stream()
    assert [stream(byte) for byte in "é!".encode()] == ["", "é", "!"]


def test_a_saved_tokenizer_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    kind = (
        Unigram if isinstance(tokenizer, Pretrained) else type(tokenizer)
    )  # by what the file holds
    assert type(again) is kind and again.vocab_size == tokenizer.vocab_size
    ids = tokenizer.encode(PROSE)
    assert again.encode(PROSE).tolist() == ids.tolist()
    assert load_tokenizer(tmp_path / "tokenizer.json").decode(ids) == tokenizer.decode(ids)
    assert (again.spaced, again.unknown_id) == (tokenizer.spaced, tokenizer.unknown_id)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def test_bpe_is_the_file_of_its_library(tmp_path):
    import tokenizers

    ours = fitted("bpe")
    ours.save(tmp_path / "tokenizer.json")
    library_tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert library_tokenizer.encode(PROSE).ids == ours.encode(PROSE).tolist()
    assert library_tokenizer.decode(ours.encode(PROSE).tolist()) == ours.decode(ours.encode(PROSE))


def test_bpe_does_not_depend_on_where_the_text_is_cut():
    one, other = BPE(vocab_size=300), BPE(vocab_size=300)
    one.fit([PROSE])
    other.fit(list(PROSE))
    assert one.library.to_str() == other.library.to_str()


def test_bpe_of_a_small_text_has_a_smaller_vocab_size():
    tokenizer = BPE(vocab_size=4096)
    tokenizer.fit(["abab"])
    assert 256 < tokenizer.vocab_size < 300
    assert sorted(tokenizer.pieces()[:256]) == [bytes([i]) for i in range(256)]


@given(text=st.text("ab \n\t'1é.\u00a0"), size=st.integers(1, 8), cuts=st.lists(st.integers(0, 40)))
@settings(deadline=None)
def test_pieces_tokenize_as_the_full_text(text, size, cuts):
    tokenizer = fitted_once("bpe")
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = list(whole_words((text[a:b] for a, b in itertools.pairwise(ends)), size=size))
    assert "".join(pieces) == text
    ids = [i for piece in pieces for i in tokenizer.encode(piece).tolist()]
    assert ids == tokenizer.encode(text).tolist()


def test_long_text_without_spaces_is_cut():
    pieces = list(whole_words(["x" * (1 << 20)] * 9))
    assert len(pieces) == 2 and sum(map(len, pieces)) == 9 << 20


def test_text_is_cut_at_the_given_positions():
    pieces = list(whole_words(["a b,c d,e f"], size=1, end=re.compile(",")))
    assert pieces == ["a b", ",c d", ",e f"]


def test_an_unknown_character_is_in_the_message():
    tokenizer = Char()
    tokenizer.fit(["hello"])
    with pytest.raises(ConfigError) as error:
        tokenizer.encode("hé🙂lloé")
    assert (
        str(error.value)
        == "tokenizer: the alphabet of 'char' is the 4 characters of its corpus; got 'é' (U+00E9),"
        " '🙂' (U+1F642). Leave them out of the text, or train with tokenizer=byte."
    )
    with pytest.raises(ConfigError, match=r"U\+D800"):  # half a surrogate pair has no utf-8
        tokenizer.encode("he\ud800llo")


def test_invalid_utf8_is_an_error_with_its_position():
    with pytest.raises(
        ConfigError, match=r"^tokenizer: text must be utf-8; got byte 0xFF at position 2\. Use "
    ):
        fitted("wordpiece").encode(b"ab\xff")
    with pytest.raises(
        ConfigError,
        match=r"^tokenizer: text must be Unicode; got half a surrogate pair at character 1\.",
    ):
        Byte().encode("a\ud800")


def test_bytes_of_the_command_line_pass_through():
    assert Byte().encode(b"\xe9t\xe9".decode("utf-8", "surrogateescape")).tolist() == [
        0xE9,
        ord("t"),
        0xE9,
    ]


def test_ids_may_be_tensors_and_scalars():
    torch = pytest.importorskip("torch")
    assert Byte().decode(torch.tensor([104, 105])) == "hi"
    assert Byte().stream()(np.int64(104)) == "h"


@pytest.mark.parametrize("size", [-1, 0, 256])
def test_too_few_byte_pairs(size):
    faults = messages(
        TOKENIZERS.faults({"name": "bpe", "vocab_size": size}, "tokenizer", Context())
    )
    assert faults == [
        "tokenizer.vocab_size: must be at least 257 tokens, the 256 bytes and one merge; "
        f"got {size}."
    ]
    assert not list(BPE.check(Options(vocab_size=257), Context()))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "tokenizer: must be a file that a run saved; got"),
        ("{", "tokenizer: must be a file that a run saved; got"),
        ("[]", "tokenizer: must be a file that a run saved; got"),
        (
            json.dumps({"tokenizer": "bytes", "state": {}}),
            "tokenizer: no tokenizer is called 'bytes' here, but ",
        ),
        (
            json.dumps({"model": {"type": "WordPiece"}}),
            "tokenizer: must be a tokenizer.json of the",
        ),
    ],
)
def test_a_file_that_is_no_tokenizer(tmp_path, content, sentence):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as error:
        load_tokenizer(path)
    assert str(error.value).startswith(sentence)
