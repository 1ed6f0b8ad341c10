"""Pairs are prepared once and unchanged, with one tokenizer or one per side, up to a length."""

import itertools
import multiprocessing
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xformer_kit.data import prepare
from xformer_kit.data.preparation.pairs import Pairs, Ragged, _fit_lengths, write_pairs
from xformer_kit.data.tokenizer import TOKENIZERS, Word
from xformer_kit.registry import ConfigError

PAIRS = [(f"the naïve café {i}", f"das Café {i}" + " und mehr" * (i % 5)) for i in range(300)]
BYTE = TOKENIZERS.create("byte")


def a_config(folder, pairs=PAIRS, tokenizer="byte", model=None, **data):
    (folder / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    data = {
        "name": "tsv",
        "path": str(folder / "pairs.tsv"),
        "test": 0.1,
        "seq_len": 64,
        "batch_size": 4,
    } | data
    node = {"name": tokenizer} if isinstance(tokenizer, str) else tokenizer
    return {"data": data | {"cache": str(folder / "cache")}, "tokenizer": node} | (
        {"model": model} if model else {}
    )


def texts(prepared, split):
    """The pairs of a split, decoded."""
    examples = [split[i] for i in range(len(split))]
    decode = prepared.source_tokenizer.decode, prepared.tokenizer.decode
    return [
        tuple(d(e[side]) for d, side in zip(decode, ("source", "target"), strict=True))
        for e in examples
    ]


@pytest.mark.extended
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tokenizer", ["byte", "char", "bpe"])
def test_prepared_pairs_are_the_pairs(tmp_path, tokenizer, shared):
    prepared = prepare(a_config(tmp_path, tokenizer={"name": tokenizer, "shared": shared}))
    found = [texts(prepared, split) for split in (prepared.train, prepared.valid, prepared.test)]
    assert sorted(pair for split in found for pair in split) == sorted(PAIRS) and all(found)
    assert prepared.dropped == {} and prepared.train[0]["source"].dtype == np.int64
    assert (prepared.source_tokenizer is prepared.tokenizer) == shared
    for split in (prepared.train, prepared.test):
        lengths = [
            [len(e["source"]) + 1, len(e["target"]) + 1]
            for e in (split[i] for i in range(len(split)))
        ]
        assert split.lengths.tolist() == lengths
        size = sum(len(t.encode()) for _, t in texts(prepared, split))
        assert split.bytes_per_token == size / sum(target for _, target in lengths)
    if tokenizer == "char" and not shared:  # each has only the alphabet of its side
        alphabets = [set("".join(pair[side] for pair in PAIRS) + "\n") for side in (0, 1)]
        assert [prepared.source_tokenizer.vocab_size, prepared.tokenizer.vocab_size] == list(
            map(len, alphabets)
        )


@pytest.mark.extended
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tokenizer", ["word", "char", "bpe"])
def test_the_tokenizers_of_a_run_are_those_of_another_text(tmp_path, tokenizer, shared):
    first = prepare(a_config(tmp_path, tokenizer={"name": tokenizer, "shared": shared}))
    run = tmp_path / "run"
    run.mkdir()
    first.tokenizer.save(run / "tokenizer.json")
    if not shared:
        first.source_tokenizer.save(run / "source_tokenizer.json")
    for path in (run, run / "tokenizer.json"):
        node = {"name": "pretrained", "path": str(path), "shared": shared}
        again = prepare(a_config(tmp_path, PAIRS[7:], tokenizer=node))
        for side in ("tokenizer", "source_tokenizer"):
            assert getattr(again, side).pieces() == getattr(first, side).pieces()
        found = [texts(again, split) for split in (again.train, again.valid, again.test)]
        if tokenizer != "word":  # which drops rare words
            assert sorted(pair for split in found for pair in split) == sorted(PAIRS[7:])
        assert again.fingerprint != first.fingerprint


def test_the_fingerprint_follows_pairs_and_tokenizers(tmp_path):
    first = prepare(a_config(tmp_path)).fingerprint
    assert prepare(a_config(tmp_path, seq_len=80, too_long="drop")).fingerprint == first
    assert (
        prepare(a_config(tmp_path, tokenizer={"name": "byte", "shared": True})).fingerprint == first
    )
    other = [
        prepare(a_config(tmp_path, tokenizer={"name": "byte", "shared": False})),
        prepare(a_config(tmp_path, tokenizer="char")),
        prepare(a_config(tmp_path, test=0.2)),
        prepare(a_config(tmp_path, [(t, s) for s, t in PAIRS])),
    ]
    assert len({first, *(p.fingerprint for p in other)}) == 5


def test_empty_pairs_are_left_out_and_counted(tmp_path):
    pairs = [*PAIRS, ("", "nobody"), ("somebody", "   "), ("", "")]
    prepared = prepare(a_config(tmp_path, pairs))
    assert sorted(
        p
        for split in (prepared.train, prepared.valid, prepared.test)
        for p in texts(prepared, split)
    ) == sorted(PAIRS)
    assert sum(prepared.dropped.values()) == 3 and {
        key.split("/")[1] for key in prepared.dropped
    } == {"empty"}


def test_pairs_that_are_too_long_are_dropped_cut_or_an_error(tmp_path):
    full = prepare(a_config(tmp_path))
    long = sum(max(len(s.encode()), len(t.encode())) + 1 > 30 for s, t in texts(full, full.train))
    dropped = prepare(a_config(tmp_path, seq_len=30, too_long="drop"))
    assert 0 < dropped.dropped["train/too_long"] == long == len(full.train) - len(dropped.train)
    assert dropped.train.lengths.max() <= 30
    kept = [p for p in texts(full, full.train) if max(len(x.encode()) for x in p) < 30]
    assert texts(dropped, dropped.train) == kept
    cut = prepare(a_config(tmp_path, seq_len=30, too_long="truncate"))
    assert cut.dropped["train/truncated"] == long and len(cut.train) == len(full.train)
    for (s, t), i in zip(texts(full, full.train), range(len(cut.train)), strict=True):
        example = cut.train[i]
        assert example["source"].tolist() == list(s.encode()[:29]) and example[
            "target"
        ].tolist() == list(t.encode()[:29])
    size = sum(len(cut.train[i]["target"]) for i in range(len(cut.train)))
    assert cut.train.bytes_per_token == size / (size + len(cut.train))
    with pytest.raises(ConfigError) as error:
        prepare(a_config(tmp_path, seq_len=30))
    first = next(
        i for i, p in enumerate(texts(full, full.train)) if max(len(x.encode()) for x in p) >= 30
    )
    max_length = full.train.lengths.max()
    assert (
        str(error.value)
        == "data.seq_len: must hold every pair, special tokens included; got 30, and pair"
        f" {first + 1} of train has"
        f" {full.train.lengths[first].max()} tokens; {long} are longer. Try {max_length}, or"
        " data.too_long=drop or truncate."
    )
    with pytest.raises(ConfigError) as error:
        prepare(a_config(tmp_path, seq_len=5, too_long="drop"))
    assert (
        str(error.value)
        == f"data.seq_len: must hold a pair, special tokens included; got 5, and {len(full.train)}"
        " pairs of train are longer. Raise it."
    )


def test_without_an_encoder_both_sides_are_one_sequence(tmp_path):
    config = a_config(tmp_path, seq_len=40, too_long="drop", model={"decoder": {}})
    decoder_only, both = (
        prepare(config),
        prepare(config | {"model": {"encoder": {}, "decoder": {}}}),
    )
    assert decoder_only.train.lengths.sum(1).max() <= 40 < both.train.lengths.sum(1).max()
    cut = prepare(a_config(tmp_path, seq_len=40, too_long="truncate", model={"decoder": {}}))
    assert (cut.train.lengths.sum(1) <= 40).all() and (cut.train.lengths > 1).all()
    assert len(cut.train) == len(prepare(a_config(tmp_path)).train)


def test_a_cut_target_keeps_at_least_half_of_seq_len():
    """seq_len is 10. Two long sides have 5 each; a short side leaves the remaining tokens to the
    other.
    """
    lengths = np.array([[20, 20], [20, 3], [3, 20], [6, 5], [4, 5]])
    assert _fit_lengths(lengths, 10, one_stream=True).tolist() == [
        [5, 5],
        [7, 3],
        [3, 7],
        [5, 5],
        [4, 5],
    ]
    assert _fit_lengths(lengths, 10, one_stream=False).tolist() == [
        [10, 10],
        [10, 3],
        [3, 10],
        [6, 5],
        [4, 5],
    ]


def test_a_split_without_pairs_is_an_error(tmp_path):
    with pytest.raises(ConfigError) as error:
        prepare(a_config(tmp_path, PAIRS[:2], valid=0.001, test=0.0))
    assert (
        str(error.value)
        == "data: the split valid must hold a pair; got none. Give more pairs, or a larger share of"
        " them; equal sources go to the same split."
    )


@pytest.mark.extended
@given(
    targets=st.lists(st.text("ab é ", min_size=1).filter(str.strip), min_size=1, max_size=9),
    seq_len=st.integers(2, 5),
)
@settings(deadline=None)
def test_bytes_are_those_of_the_text_that_is_kept(tmp_path_factory, targets, seq_len):
    folder = tmp_path_factory.mktemp("cache")
    words = Word()
    words.fit(["a ab"])
    meta = write_pairs(folder, "train", words, words, [("a", target) for target in targets])
    sides = [Ragged(folder / f"train.{side}", **meta[side]) for side in ("source", "target")]
    start = re.compile(rf"\s*(\S+\s*){{1,{seq_len - 1}}}")
    kept = [start.match(text)[0] for text in targets]
    size = sum(
        len((text if text == target else text.rstrip()).encode())
        for text, target in zip(kept, targets, strict=True)
    )
    cut = Pairs(sides, "train", seq_len, "truncate", one_stream=False)
    assert cut.bytes_per_token == size / cut.predicted


@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30),
    seq_len=st.integers(2, 12),
    too_long=st.sampled_from(["drop", "truncate"]),
    one_stream=st.booleans(),
)
@settings(deadline=None)
def test_files_of_pairs_hold_what_was_written(
    tmp_path_factory, lengths, seq_len, too_long, one_stream
):
    folder = tmp_path_factory.mktemp("cache") / "fresh"
    folder.mkdir()
    pairs = [("s" * a, "t" * b) for a, b in lengths]
    meta = write_pairs(folder, "train", BYTE, BYTE, pairs)
    full = [pair for pair in pairs if all(pair)]
    assert meta["empty"] == len(pairs) - len(full)
    sides = [Ragged(folder / f"train.{side}", **meta[side]) for side in ("source", "target")]
    for side, ragged in enumerate(sides):
        cuts = itertools.pairwise(ragged.offsets)
        assert [bytes(ragged.ids[start:end]).decode() for start, end in cuts] == [
            pair[side] for pair in full
        ]
        assert ragged.lengths.tolist() == [len(pair[side]) for pair in full]
    try:
        examples = Pairs(sides, "train", seq_len, too_long, one_stream)
    except ConfigError:
        check_divisible = [
            len(s) + len(t) + 2 <= seq_len if one_stream else max(len(s), len(t)) < seq_len
            for s, t in full
        ]
        assert not any(check_divisible) or (one_stream and seq_len < 4)
        return
    assert examples.lengths.shape == (len(examples), 2) and (examples.lengths > 1).all()
    assert ((examples.lengths.sum(1) if one_stream else examples.lengths.max(1)) <= seq_len).all()
    assert len(examples) + examples.dropped.get("too_long", 0) == len(full)
    copy = pickle.loads(pickle.dumps(examples))  # in a loader worker
    for i in range(len(examples)):
        assert {k: v.tolist() for k, v in copy[i].items()} == {
            k: v.tolist() for k, v in examples[i].items()
        }
    with pytest.raises(IndexError):
        examples[len(examples)]


def _prepare_at_once(config, start, results):
    start.wait()
    data = prepare(config)
    results.put((data.fingerprint, int(data.train.lengths.sum()), str(data.folder)))


def test_processes_that_prepare_at_once_agree(tmp_path):
    config = a_config(
        tmp_path, tokenizer={"name": "char", "shared": False}
    )  # a fork of threads of `tokenizers` hangs
    context = multiprocessing.get_context("fork")
    start, results = context.Event(), context.SimpleQueue()
    processes = [
        context.Process(target=_prepare_at_once, args=(config, start, results)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    start.set()
    found = {results.get() for _ in processes}
    for process in processes:
        process.join()
    assert len(found) == 1 and {process.exitcode for process in processes} == {0}


@pytest.mark.parametrize(
    "name", ["train.source.bin", "test.target.offsets", "source_tokenizer.json"]
)
def test_a_damaged_cache_is_prepared_again(tmp_path, name):
    config = a_config(tmp_path, tokenizer={"name": "char", "shared": False})
    data = prepare(config)
    expected = texts(data, data.test)
    (data.folder / name).write_bytes(b"x")
    again = prepare(config)
    assert texts(again, again.test) == expected
