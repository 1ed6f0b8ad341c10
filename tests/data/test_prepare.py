"""Tokens are prepared once, completely or not at all, also by several processes; windows cover the
text.
"""

import json
import math
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from xformer_kit.data import cache, collate, prepare
from xformer_kit.data.corpus import CORPORA, Corpus
from xformer_kit.data.preparation.windows import Windows
from xformer_kit.registry import ConfigError

PROSE = "".join(f"Line {i}: the naïve café is open, isn't it?\n" for i in range(300))


@pytest.fixture
def config(tmp_path):
    (tmp_path / "text.txt").write_text(PROSE, encoding="utf-8")
    return a_config(tmp_path)


def a_config(tmp_path, tokenizer="byte", **data):
    data = {
        "name": "text",
        "path": str(tmp_path / "text.txt"),
        "seq_len": 32,
        "batch_size": 4,
    } | data
    return {"data": data | {"cache": str(tmp_path / "cache")}, "tokenizer": {"name": tokenizer}}


@pytest.mark.parametrize("tokenizer", ["byte", "char", "bpe"])
def test_prepared_tokens_are_the_text(tmp_path, config, tokenizer):
    config["tokenizer"] = {"name": tokenizer}
    data = prepare(config)
    cut = int(len(PROSE) * 0.9)
    for split, text in (("train", PROSE[:cut]), ("valid", PROSE[cut:])):
        windows = getattr(data, split)
        assert data.tokenizer.decode(windows.ids) == text
        assert windows.ids.dtype == data.tokenizer.dtype and windows.tokens == len(windows.ids)
        assert windows.bytes == len(text.encode()) - len(data.tokenizer.to_bytes(windows.ids[:1]))
        if tokenizer == "bpe":  # pieces are the whole
            assert windows.ids.tolist() == data.tokenizer.encode(text).tolist()
    again = prepare(config)
    assert again.fingerprint == data.fingerprint and again.folder == data.folder


def test_the_fingerprint_depends_only_on_text_split_and_tokenizer(tmp_path, config):
    first = prepare(config).fingerprint
    shutil.copy(tmp_path / "text.txt", tmp_path / "copy.txt")
    same = [{"seq_len": 8}, {"batch_size": 2}, {"path": str(tmp_path / "copy.txt")}]
    assert {prepare(a_config(tmp_path, **change)).fingerprint for change in same} == {first}
    bpe = [{"name": "bpe", "vocab_size": 300}, {"name": "bpe"}, {"name": "bpe", "vocab_size": 2048}]
    other = [prepare(config | {"tokenizer": node}).fingerprint for node in bpe]
    other += [prepare(a_config(tmp_path, valid=0.2)).fingerprint]
    assert other[1] == other[2] and len({first, *other}) == 4
    (tmp_path / "text.txt").write_text(PROSE + "More.\n", encoding="utf-8")
    assert prepare(config).fingerprint != first


@given(tokens=st.integers(2, 60), seq_len=st.integers(1, 20))
@settings(deadline=None)
def test_windows_predict_every_token_once(tmp_path_factory, tokens, seq_len):
    file = tmp_path_factory.mktemp("windows") / "a.bin"
    ids = np.arange(1, tokens + 1, dtype=np.uint16)
    ids.tofile(file)
    valid = Windows(file, "<u2", tokens, tokens, seq_len, pad=True)
    targets = [
        x
        for w in valid
        for x in w["tokens"][1:][w.get("tokens.real", np.ones(seq_len + 1, bool))[1:]].tolist()
    ]
    assert targets == ids[1:].tolist() and valid.predicted == len(targets)
    assert all(("real" in valid[i]) <= (i == len(valid) - 1) for i in range(len(valid)))
    if tokens > seq_len:
        train = Windows(file, "<u2", tokens, tokens, seq_len, pad=False)
        targets = [x for window in train for x in window["tokens"][1:].tolist()]
        assert (
            targets == ids[1 : len(train) * seq_len + 1].tolist()
            and tokens - 1 - len(targets) < seq_len
        )
        assert train.predicted == len(targets)
        assert len(collate([train[0], train[-1]])["tokens"].ids) == 2


def test_the_entropy_of_frequencies(tmp_path):
    """log 4 for four ids that are equally frequent, 0 for one; with 3 to 1, that of a coin."""
    cases = {(1, 2, 3, 9): math.log(4), (7, 7, 7): 0.0, (0, 5, 5, 5): 0.562335}
    for ids, expected in cases.items():
        file = tmp_path / f"{len(ids)}{ids[0]}.bin"
        np.array(ids * 5, dtype=np.uint16).tofile(file)
        windows = Windows(file, "<u2", 5 * len(ids), 0, 2, pad=False)
        assert windows.unigram_entropy == pytest.approx(expected, abs=1e-6)


def test_a_batch_has_padding_only_where_it_needs_it(config):
    data = prepare(config)
    assert collate([data.train[0], data.train[1]])["tokens"].real is None
    tokens = collate([data.valid[0], data.valid[len(data.valid) - 1]])["tokens"]
    assert tokens.ids.shape == tokens.real.shape == (2, 33)
    assert tokens.real[0].all() and not tokens.real[1].all()
    _, target = tokens.shifted()
    assert (target[1] == -1).sum() == (~tokens.real[1]).sum()


def test_a_loader_worker_maps_the_file_instead_of_copying_it(config):
    train = prepare(config).train
    size = len(train.ids)
    copy = pickle.dumps(train)
    assert (
        len(copy) < size / 10
        and pickle.loads(copy)[3]["tokens"].tolist() == train[3]["tokens"].tolist()
    )
    with pytest.raises(IndexError):
        train[len(train)]


@pytest.mark.parametrize("documents", [False, True])
def test_a_cache_that_is_removed_during_a_run_is_an_error(config, documents):
    config["data"]["documents"] = documents
    data = prepare(config)
    copy = pickle.dumps(data.valid)  # as a loader process receives it
    shutil.rmtree(data.folder)
    assert len(data.valid.ids) == data.valid.tokens  # of a map that was open before
    with pytest.raises(cache.CacheRemovedError):
        next(iter(DataLoader(pickle.loads(copy), num_workers=1)))


def test_a_text_shorter_than_a_window_is_an_error(tmp_path):
    (tmp_path / "text.txt").write_text("x" * 40)
    with pytest.raises(ConfigError) as error:
        prepare(a_config(tmp_path, seq_len=256))
    assert (
        str(error.value)
        == "data.seq_len: one window, seq_len + 1 = 257 tokens, must fit into the training text;"
        " got a text of 36 tokens. Try 35 or less, or give a longer text."
    )
    with pytest.raises(ConfigError) as error:
        prepare(a_config(tmp_path, seq_len=8, valid=0.02))
    assert (
        str(error.value)
        == "data: the validation text must have at least 2 tokens; got 1. Give a longer text, or a"
        " larger data.valid."
    )


@pytest.mark.parametrize(
    "damage", ["half", "no meta", "half a meta", "gone", "other tokens", "tokenizer"]
)
def test_a_damaged_cache_is_prepared_again(config, damage, caplog):
    data = prepare(config)
    assert not caplog.messages
    expected = data.train.ids.tolist()
    if damage == "half":
        (data.folder / "train.bin").write_bytes(b"x")
    elif damage == "no meta":
        (data.folder / "meta.json").unlink()
    elif damage == "half a meta":
        (data.folder / "meta.json").write_text((data.folder / "meta.json").read_text()[:40])
    elif damage == "gone":
        (data.folder / "valid.bin").unlink()
    else:  # of the same size
        file = data.folder / ("train.bin" if damage == "other tokens" else "tokenizer.json")
        content = file.read_bytes()
        file.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    assert prepare(config).train.ids.tolist() == expected
    assert caplog.messages == [
        f"data.cache: '{data.folder}' is not as it was written; it is prepared again."
    ]
    assert not list(data.folder.parent.glob(".*.tmp"))


def test_a_killed_preparation_leaves_no_prepared_directory(config, monkeypatch):
    class Killed(BaseException):
        pass

    def die(path, *rest):
        path.write_bytes(b"half")
        raise Killed

    import sys

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["xformer_kit.data.preparation.prepare"], "write_tokens", die)
        with pytest.raises(Killed):
            prepare(config)
    assert len(prepare(config).train) > 0


def _prepare_at_once(config, start, results):
    start.wait()
    data = prepare(config)
    results.put((data.fingerprint, int(data.train.ids.sum()), str(data.folder)))


def test_files_of_a_killed_preparation_are_removed_after_a_day(config):
    base = prepare(config).folder.parent
    fingerprint = prepare(config).folder.name
    young, old, other = f".{fingerprint}.1.tmp", f".{fingerprint}.2.tmp", ".notes.tmp"
    for name, hours in ((young, 23.9), (old, 24.1), (other, 24.1)):
        (base / name).mkdir()
        os.utime(base / name, (time.time() - 3600 * hours,) * 2)
    shutil.rmtree(prepare(config).folder)
    prepare(config)
    assert {path.name for path in base.glob(".*.tmp")} == {young, other}


def test_the_cache_writes_through_no_link(config, tmp_path):
    folder = prepare(config).folder
    index, lock, outside = folder.parent / "index", Path(f"{folder}.lock"), tmp_path / "outside"
    outside.mkdir()
    for path in (index, folder):
        shutil.rmtree(path)
    index.symlink_to(outside)
    prepare(config)
    shutil.rmtree(folder)
    lock.unlink()
    lock.symlink_to(outside / "key")
    with pytest.raises(ConfigError, match=r"^data\.cache: must be a directory with room"):
        prepare(config)
    assert not [*outside.iterdir()]


def test_the_checksums_that_are_kept_are_those_of_zlib(config):
    folder = prepare(config).folder
    sums = json.loads((folder / "meta.json").read_text())["sums"]
    files = sorted(path for path in folder.iterdir() if path.name != "meta.json")
    assert sums == {path.name: f"{zlib.crc32(path.read_bytes()):08x}" for path in files}


def test_a_digest_does_not_depend_on_the_order_of_options():
    assert cache.digest({"a": 1, "b": {"c": 2, "d": 3}}) == cache.digest(
        {"b": {"d": 3, "c": 2}, "a": 1}
    )
    assert cache.digest([1, 2]) != cache.digest([2, 1])


def test_only_one_process_prepares_a_directory_at_a_time(tmp_path):
    fcntl = pytest.importorskip("fcntl")

    def make(folder):
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return {}

    with open(tmp_path / "data.lock", "a") as other:
        assert cache.get_or_make(tmp_path / "data", make) == {"sums": {}}
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_directory_with_a_damaged_file_is_prepared_again(tmp_path):
    def make(folder):
        (folder / "tokens.bin").write_bytes(b"abc")
        return {"count": 3}

    folder, made = tmp_path / "data", []
    assert cache.get_or_make(folder, lambda f: made.append(f) or make(f))["count"] == 3
    assert cache.read_meta(folder)["count"] == 3
    cache.get_or_make(folder, lambda f: made.append(f) or make(f))
    assert len(made) == 1
    (folder / "tokens.bin").write_bytes(b"abd")
    assert cache.read_meta(folder) is None
    cache.get_or_make(folder, lambda f: made.append(f) or make(f))
    assert len(made) == 2 and (folder / "tokens.bin").read_bytes() == b"abc"


@pytest.mark.parametrize("locks", [True, False])
def test_processes_that_prepare_at_once_agree(config, monkeypatch, locks):
    if not locks:
        monkeypatch.setattr(cache, "fcntl", None)  # inherited by the forks
    context = multiprocessing.get_context("fork")
    start, results = context.Event(), context.SimpleQueue()
    processes = [
        context.Process(target=_prepare_at_once, args=(config, start, results)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    start.set()
    found = {results.get() for _ in processes}
    for process in processes:
        process.join()
    assert len(found) == 1 and {process.exitcode for process in processes} == {0}
    assert found == {
        (
            prepare(config).fingerprint,
            int(prepare(config).train.ids.sum()),
            str(prepare(config).folder),
        )
    }
    assert not list(prepare(config).folder.parent.glob(".*.tmp"))


def test_a_cache_that_cannot_be_written(tmp_path, config):
    (tmp_path / "file").touch()
    config["data"]["cache"] = str(tmp_path / "file" / "below")
    with pytest.raises(ConfigError) as error:
        prepare(config)
    assert (
        str(error.value) == "data.cache: must be a directory with room for the prepared tokens; got"
        f" '{tmp_path}/file/below' (Not a directory). Set data.cache to another directory."
    )


LIMITED = """
import json, resource, sys
from xformer_kit.data import prepare
from xformer_kit.registry import ConfigError
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
for config in json.loads(sys.argv[1]):
    try:
        prepare(config)
    except ConfigError as error:
        print(error)
"""


@pytest.mark.extended
@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files as POSIX does")
def test_a_full_disk_is_an_error_with_its_reason(tmp_path, config):
    (tmp_path / "text.tsv").write_text(
        "".join(f"{line}\t{line}\n" for line in PROSE.splitlines()), encoding="utf-8"
    )
    pairs = a_config(tmp_path, name="tsv", path=str(tmp_path / "text.tsv"))
    configs = [config, pairs | {"task": {"name": "seq2seq"}}]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, json.dumps(configs)], capture_output=True, text=True
    )
    assert done.stdout == 2 * (
        "data.cache: must be a directory with room for the prepared tokens; got"
        f" '{tmp_path}/cache' (File too large). Set data.cache to another directory.\n"
    ), done.stderr


def test_text_that_changes_while_it_is_read_is_refused(tmp_path, config, monkeypatch):
    stamps = iter([["before"], ["after"]])
    monkeypatch.setattr(CORPORA["text"], "stamp", lambda self: next(stamps))
    with pytest.raises(ConfigError, match=r"^data: was changed while it was read\."):
        prepare(config)


def test_a_users_corpus_is_prepared(tmp_path):
    class Squares(Corpus):
        def __init__(self, *, count: int = 200):  # numbers
            self.count = count

        def stamp(self):
            return [self.count]

        def texts(self, split):
            yield from (
                f"{i * i} " for i in range(self.count) if (i % 10 == 0) == (split == "valid")
            )

    CORPORA.register("squares")(Squares)
    try:
        data = prepare(a_config(tmp_path, name="squares", tokenizer="char"))
    finally:
        CORPORA.forget(Squares.__module__)
    assert data.tokenizer.decode(data.valid.ids).startswith("0 100 400 ")
    assert json.loads((data.folder / "meta.json").read_text())["corpus"] == "squares"


def test_the_default_cache_is_in_the_xdg_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory(None) == tmp_path / "xformer_kit"
    assert cache.directory("~/x") == tmp_path.home() / "x"
