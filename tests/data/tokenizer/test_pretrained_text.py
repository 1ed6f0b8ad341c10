"""A pretrained tokenizer.json has the ids and texts of the library."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.tokenizer.tokenizer_forms import BYTES, FORMS, PROSE, SPELLED, built
from xformer_kit.data.tokenizer import Pretrained
from xformer_kit.data.tokenizer.decoding_rule import decoding_rule
from xformer_kit.registry import ConfigError

TEXT = st.text(st.characters(exclude_categories=("Cs",))) | st.text(" ab.\n")


@pytest.mark.parametrize("form", FORMS)
def test_ids_and_text_are_those_of_the_library(pretrained, tokenizer_files, form):
    import tokenizers

    ours, theirs = (
        pretrained[form],
        tokenizers.Tokenizer.from_file(str(tokenizer_files / form / "tokenizer.json")),
    )
    theirs.no_truncation()
    theirs.no_padding()
    ids = ours.encode(PROSE).tolist()
    assert ids == theirs.encode(PROSE, add_special_tokens=False).ids
    text = theirs.decode(ids)
    assert ours.decode(ids) == (
        text.removeprefix(" ") if form == "roberta_prefix" else text
    )  # without the space that the encoder put in front
    assert ours.vocab_size == max(theirs.get_vocab().values()) + 1
    assert ours.to_bytes(ids) == ours.decode(ids).encode()


@pytest.mark.parametrize("form", FORMS)
def test_a_file_without_a_decoder_is_decoded_as_its_other_parts_state(pretrained, form):
    data = json.loads(pretrained[form].library.to_str())
    one = Pretrained.read(json.dumps(data | {"decoder": None}), Path())
    ids = one.encode(PROSE)
    assert one.decodes and one.decode(ids) == pretrained[form].decode(ids)
    if form == "suffix":
        data["model"]["end_of_word_suffix"] = None
        assert not Pretrained.read(json.dumps(data | {"decoder": None}), Path()).decodes


FAMILIES = (("gpt2", "roberta_prefix"), ("llama", "gemma", "t5"), ("bert",), ("suffix",))


@pytest.mark.parametrize("form", [*itertools.chain(*FAMILIES)])
def test_a_decoder_of_another_family_is_found(pretrained, form):
    """A text that is decoded with the file's own decoder has the same letters and tokens."""
    text = " quick brown"
    assert pretrained[form].misread(text) is None
    data = json.loads(pretrained[form].library.to_str())
    for family in FAMILIES:
        for other in family * (form not in family):
            decoder = json.loads(pretrained[other].library.to_str())["decoder"]
            one = Pretrained.read(json.dumps(data | {"decoder": decoder}), Path())
            assert one.misread(text) == one.decode(one.encode(text)), other
    assert pretrained[form].misread(" 漢") is None  # it has no token, or those of its bytes


def test_a_space_at_the_start_is_not_doubled(pretrained):
    """A space that a normalizer puts in front is put in front of a space, too."""
    from tokenizers import normalizers

    for normalizer in (None, normalizers.Prepend(" ")):
        library = built("roberta_prefix")
        library.normalizer = normalizer
        one = Pretrained.read(library.to_str(), Path())
        for text in ("stop", " stop", "  stop"):
            assert one.decode(one.encode(text)) == text


def test_a_unigram_without_unknown_token_is_refused(pretrained):
    data = json.loads(pretrained["t5"].library.to_str())
    data["model"]["unk_id"] = None
    with pytest.raises(ConfigError) as refused:
        Pretrained.read(json.dumps(data), Path())
    assert str(refused.value) == (
        "tokenizer: a tokenizer.json with a Unigram model must have its unk_id; got null. Set it to"
        " the id of a token for unknown text."
    )


def test_a_space_of_sentencepiece_in_a_text_is_counted_with_its_bytes(pretrained):
    """It is decoded as a space, since both are one token."""
    text = "it▁stops ▁▁."
    for form in SPELLED:
        encoding = pretrained[form].encoding(text)
        assert encoding.sizes.sum() == encoding.bytes == len(text.encode())


def test_bytes_that_a_file_marks_as_special_are_text(pretrained):
    data = json.loads(pretrained["llama"].library.to_str())
    names = data["model"]["vocab"]
    data["added_tokens"] += [
        data["added_tokens"][0] | {"id": names[name], "content": name}
        for name in ("<0xC3>", "<0xA9>")
    ]
    one = Pretrained.read(json.dumps(data), Path())
    text = "café <0xC3> <s> é"
    assert one.decode(one.encode(text)) == text and names["<s>"] not in one.encode(text)


@pytest.mark.parametrize("form", FORMS)
def test_streamed_text_is_the_decoded_text(pretrained, form):
    ids = pretrained[form].encode(PROSE).tolist()
    stream = pretrained[form].stream()
    streamed = [stream(i) for i in ids]
    assert "".join(streamed) + stream.end() == pretrained[form].decode(ids)
    assert "".join(streamed[: len(ids) // 2])  # not all at the end


@pytest.mark.parametrize("form", BYTES)
@given(text=TEXT)
@settings(deadline=None)
def test_text_comes_back_from_tokens_of_bytes(pretrained, form, text):
    text = text.replace("\u2581", "_") if form in SPELLED else text
    ids = pretrained[form].encode(text)
    assert pretrained[form].decode(ids) == text
    assert pretrained[form].encoding(text).sizes.sum() == len(text.encode())


@pytest.mark.parametrize("form", BYTES)
@given(data=st.binary())
@settings(deadline=None)
def test_any_bytes_come_back(pretrained, form, data):
    if form not in SPELLED or b"\xe2\x96\x81" not in data:
        assert pretrained[form].to_bytes(pretrained[form].encode(data)) == data


@pytest.mark.extended
@pytest.mark.parametrize("form", FORMS)
def test_pieces_of_a_text_are_encoded_as_the_whole(pretrained, form):
    text = (PROSE + "x") * 100  # no white space at the end of a piece that is not the last
    pieces = [text[a:b] for a, b in itertools.pairwise([0, 5, 70_000, 70_001, len(text)])]
    assert (
        np.concatenate([piece.ids for piece in pretrained[form].encode_all(pieces)]).tolist()
        == pretrained[form].encode(text).tolist()
    )


@pytest.mark.parametrize(
    ("form", "special"), [("gpt2", "<|endoftext|>"), ("llama", "<s>"), ("bert", "[MASK]")]
)
def test_text_is_never_encoded_as_a_special_token(pretrained, form, special):
    one = pretrained[form].library.token_to_id(special)
    ids = pretrained[form].encode(f"it {special} stop").tolist()
    assert one not in ids
    assert pretrained[form].decode([one, *pretrained[form].encode("stop").tolist(), one]) == "stop"
    if form != "bert":
        assert pretrained[form].decode(ids) == f"it {special} stop"


@pytest.mark.parametrize("form", FORMS)
def test_special_tokens_decode_to_nothing(pretrained, form):
    """All except the token of unknown text, which is shown."""
    one = pretrained[form]
    special = [i for i, token in one.added.items() if token["special"] and i != one.unknown_id]
    ids = one.encode("it doesn't stop").tolist()
    assert one.to_bytes([*special, *ids, *special]) == one.to_bytes(ids)


@pytest.mark.parametrize(
    ("form", "shown"), [("bert", "[UNK]"), ("t5", "<unk>"), ("words", "<unk>"), ("suffix", "<unk>")]
)
def test_unknown_text_is_counted_and_shown(pretrained, form, shown):
    ids = pretrained[form].encode("it 漢 stop.")
    assert (
        pretrained[form].count_unknown(ids) == 1
        and pretrained[form].count_unknown(pretrained[form].encode("it stop.")) == 0
    )
    assert shown in pretrained[form].decode(ids)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "bert"])
def test_word_starts_are_the_starts_of_words(pretrained, form):
    text = "The quick brown it doesn't stop."
    ids = pretrained[form].encode(text)
    starts = np.flatnonzero(pretrained[form].word_starts(ids))
    words = [pretrained[form].decode(word).strip() for word in np.split(ids, starts[1:])]
    assert [word.replace(" ", "") for word in words] == (
        text.split() if form != "suffix" else _marks(text)
    )


def _marks(text):
    import re

    return re.findall(r"\w+|[^\w\s]", text)


def test_a_decoder_that_replaces_a_pattern_uses_the_library():
    from tokenizers import Regex, decoders

    made = built("gemma")
    made.decoder = decoders.Sequence(
        [decoders.Replace(Regex("\u2581+"), " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    assert decoding_rule(json.loads(made.to_str()), made.decoder) is None
