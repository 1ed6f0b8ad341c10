"""A corpus is prepared with each kind of tokens: bytes and unknown tokens are counted, and another
file is other data.
"""

import pytest

from xformer_kit.data import prepare
from xformer_kit.data.tokenizer import Unigram

PROSE = "".join(f"Line {i % 7}: the naïve café is open, isn't it?\n" for i in range(3000))


def config(tmp_path, text=PROSE, **tokenizer):
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    data = {"name": "text", "path": str(tmp_path / "text.txt"), "seq_len": 16, "batch_size": 4}
    return {"data": data | {"cache": str(tmp_path / "cache")}, "tokenizer": tokenizer}


@pytest.mark.parametrize(
    "node",
    [
        {"name": "word"},
        {"name": "unigram", "vocab_size": 330},
        {"name": "wordpiece", "vocab_size": 100},
    ],
)
def test_ids_and_bytes_are_those_of_the_whole_text(tmp_path, node):
    prepared = prepare(config(tmp_path, **node))
    for split, text in (
        ("train", PROSE[: int(len(PROSE) * 0.9)]),
        ("valid", PROSE[int(len(PROSE) * 0.9) :]),
    ):
        windows, tokenizer = getattr(prepared, split), prepared.tokenizer
        assert windows.ids.tolist() == tokenizer.encode(text).tolist()
        decoded = tokenizer.decode(windows.ids)
        assert windows.bytes == len(text.encode()) - len(tokenizer.to_bytes(windows.ids[:1]))
        if node["name"] == "unigram":
            assert decoded == text
    assert prepared.unknown == {}


def test_unknown_tokens_are_counted(tmp_path):
    text = "a b c d e " * 90 + "a hen " * 15
    prepared = prepare(config(tmp_path, text, name="word"))
    valid = prepared.tokenizer.decode(prepared.valid.ids).split()
    assert (
        set(prepared.unknown) == {"valid"}
        and prepared.unknown["valid"] == valid.count("<unk>") == 15
    )
    assert (
        prepare(config(tmp_path, text, name="word")).unknown == prepared.unknown
    )  # from the cache


def test_another_file_of_the_same_name_is_other_data(tmp_path):
    path = tmp_path / "mine.json"
    fingerprints = set()
    for text in (PROSE, PROSE + "Another end."):
        learned = Unigram(vocab_size=400)
        learned.fit([text])
        learned.save(path)
        prepared = prepare(config(tmp_path, name="pretrained", path=str(path)))
        fingerprints.add(prepared.fingerprint)
        assert prepared.tokenizer.vocab_size == learned.vocab_size
        assert prepared.valid.bytes > 0
    assert len(fingerprints) == 2


@pytest.mark.parametrize("name", ["char", "word", "byte"])
def test_the_tokenizer_of_a_run_encodes_another_text_without_a_fit(tmp_path, name):
    first = prepare(config(tmp_path, name=name))
    path = str(first.folder / "tokenizer.json")
    again = prepare(config(tmp_path, PROSE[::-1], name="pretrained", path=path))
    assert type(again.tokenizer) is type(first.tokenizer)
    assert again.tokenizer.pieces() == first.tokenizer.pieces()
    assert (
        again.train.ids.tolist()
        == first.tokenizer.encode(PROSE[::-1])[: again.train.tokens].tolist()
    )
