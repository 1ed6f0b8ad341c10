"""Words separated by white space: the most frequent have ids, the others are unknown; also from a
list of words.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.data.tokenizer import TOKENIZERS, Word, load_tokenizer
from xformer_kit.registry import ConfigError, Context, Options

TEXT = "the cat saw the dog\nthe dog  saw\ta bird"


def learned(text=TEXT, **options):
    tokenizer = Word(**options)
    tokenizer.fit([text])
    return tokenizer


def test_the_most_frequent_words_come_first():
    assert learned().words == ["<unk>", "the", "dog", "saw", "a", "bird", "cat"]
    assert learned(vocab_size=3).words == ["<unk>", "the", "dog"]
    assert learned(min_count=2).words == ["<unk>", "the", "dog", "saw"]
    assert learned(unknown="error").words == ["the", "dog", "saw", "a", "bird", "cat"]


def test_an_unknown_word_is_shown_and_counted():
    tokenizer = learned()
    ids = tokenizer.encode("a cat  and a\nhen")
    assert ids.tolist() == [4, 6, 0, 4, 0]
    assert tokenizer.decode(ids) == "a cat <unk> a <unk>"
    assert tokenizer.count_unknown(ids) == 2 and tokenizer.unknown_id == 0


def test_the_word_unk_is_the_unknown_token():
    tokenizer = learned("a <unk> <unk> b")
    assert tokenizer.words == ["<unk>", "a", "b"]
    assert tokenizer.encode("b <unk>").tolist() == [2, 0]


def test_an_unknown_word_is_an_error_with_unknown_error():
    tokenizer = learned(unknown="error")
    with pytest.raises(ConfigError) as error:
        tokenizer.encode("a hen saw the cow and the hen")
    assert (
        str(error.value)
        == "tokenizer: the words of 'word' are the 6 of its list; got 'and', 'cow', 'hen'. "
        "Leave them out of the text, or train with tokenizer.unknown=token."
    )
    assert tokenizer.count_unknown(tokenizer.encode("the cat")) == 0


@given(text=st.text("ab \n\u00a0"), cuts=st.lists(st.integers(0, 30)))
def test_it_does_not_matter_where_the_text_is_cut(text, cuts):
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(ends)]
    cut = Word()
    cut.fit(pieces)
    assert cut.words == learned(text).words
    assert [i for piece in cut.encode_all(pieces) for i in piece.ids.tolist()] == cut.encode(
        text
    ).tolist()


def test_a_list_of_words_gives_the_ids(tmp_path):
    tokenizer = Word.of(["jump", "walk", "I_LOOK"])
    assert tokenizer.encode("I_LOOK jump").tolist() == [2, 0]
    assert (tokenizer.vocab_size, tokenizer.unknown_id) == (3, None)
    known = Word.restore({"words": ["jump"], "unknown": "token"})
    assert known.encode("jump run").tolist() == [1, 0]
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    assert (again.words, again.unknown) == (tokenizer.words, "error")


@pytest.mark.parametrize("words", [["a", "a"], ["a b"], [""], [" a"], [1]])
def test_a_list_with_a_wrong_word_is_an_error(words):
    with pytest.raises(
        ConfigError, match=r"^tokenizer: words must be texts without white space, each once; got "
    ):
        Word.of(words)


def test_each_token_of_word_begins_a_word():
    tokenizer = learned()
    assert tokenizer.word_starts(tokenizer.encode("the cat and the dog")).tolist() == [True] * 5


def test_too_few_words():
    assert messages(
        TOKENIZERS.faults({"name": "word", "vocab_size": 1, "min_count": 0}, "tokenizer", Context())
    ) == [
        "tokenizer.vocab_size: must be at least 2 tokens, `<unk>` and a word; got 1.",
        "tokenizer.min_count: must be at least 1 time; got 0.",
    ]
    assert not list(Word.check(Options(vocab_size=None, min_count=1), Context()))
