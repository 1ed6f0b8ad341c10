"""A tokenizer.json that others made: the library's ids, any bytes where its tokens are bytes,
sentences where it is missing.
"""

import errno
import itertools
import json
import os
import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.data.tokenizer import TOKENIZERS, Pretrained, load_tokenizer
from xformer_kit.data.tokenizer.pieces import rule_of
from xformer_kit.registry import ConfigError, Context

PROSE = "The quick brown fox; it doesn't stop.\n    Naïve café, 1234 times!  \n" * 30
TEXT = st.text(st.characters(exclude_categories=("Cs",))) | st.text(" ab.\n")


def built(form):
    """A tokenizer as published ones are made: its normaliser, its words, its model, its decoder."""
    from tokenizers import AddedToken, processors

    if form in ("llama", "gemma"):
        return _llama(prefix=form == "llama")
    made, trainer = {
        "gpt2": _bytes,
        "roberta_prefix": lambda: _bytes(space=True),
        "t5": _t5,
        "bert": _bert,
        "suffix": _suffix,
        "words": _words,
    }[form]()
    made.train_from_iterator([PROSE], trainer)
    if form == "gpt2":
        made.add_tokens([AddedToken("    ", normalized=False)])
        made.enable_truncation(8)
        made.enable_padding(length=16)
    if form == "bert":
        made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def _bytes(space=False):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    level = pre_tokenizers.ByteLevel
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = level(add_prefix_space=space), decoders.ByteLevel()
    return made, trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(level.alphabet()),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )


def _llama(prefix=True):
    """The trainer needs words, the model has none: it is trained with them and rebuilt without.
    Gemma's has no `prefix`: no space is put in front of a text, and none is stripped.
    """
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    space, rules = "\u2581", {"unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True}
    trained = Tokenizer(models.BPE(**rules))
    put = [normalizers.Prepend(space)] * prefix
    trained.normalizer = normalizers.Sequence([*put, normalizers.Replace(" ", space)])
    trained.pre_tokenizer = pre_tokenizers.Split(space, "merged_with_next")
    names = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=names, show_progress=False, max_token_length=8
    )
    trained.train_from_iterator([PROSE], trainer)
    made = Tokenizer(models.BPE(trained.get_vocab(), _merges(trained), **rules))
    made.normalizer = trained.normalizer
    strip = [decoders.Strip(" ", 1, 0)] * prefix
    made.decoder = decoders.Sequence(
        [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    made.add_special_tokens(["<unk>", "<s>"])
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return made


def _t5():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Replace("  ", " ")
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return made, trainers.UnigramTrainer(
        vocab_size=200,
        unk_token="<unk>",
        special_tokens=["<pad>", "</s>", "<unk>"],
        show_progress=False,
    )


def _bert():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    made.decoder = decoders.WordPiece()
    return made, trainers.WordPieceTrainer(
        vocab_size=120,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False,
    )


def _suffix():
    """As in Sennrich's and in Moses' days."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    end = {"end_of_word_suffix": "</w>"}
    made = Tokenizer(models.BPE(unk_token="<unk>", **end))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder()
    return made, trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>", "</s>"], show_progress=False, **end
    )


def _words():
    """Words, and no decoder."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made, trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)


def _merges(made):
    return [tuple(merge) for merge in json.loads(made.to_str())["model"]["merges"]]


FORMS = ["gpt2", "roberta_prefix", "llama", "gemma", "t5", "bert", "suffix", "words"]
BYTES = ["gpt2", "roberta_prefix", "llama", "gemma"]
SPELLED = ("llama", "gemma")  # what they write for a space is no text of its own


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for form in FORMS:
        (folder / form).mkdir()
        built(form).save(str(folder / form / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def made(files):
    return {
        form: TOKENIZERS.create({"name": "pretrained", "path": str(files / form)}) for form in FORMS
    }


@pytest.mark.parametrize("form", FORMS)
def test_ids_and_text_are_those_of_the_library(made, files, form):
    import tokenizers

    ours, theirs = made[form], tokenizers.Tokenizer.from_file(str(files / form / "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    ids = ours.encode(PROSE).tolist()
    assert ids == theirs.encode(PROSE, add_special_tokens=False).ids
    text = theirs.decode(ids)
    assert ours.decode(ids) == (
        text.removeprefix(" ") if form == "roberta_prefix" else text
    )  # the space it put there
    assert ours.vocab_size == max(theirs.get_vocab().values()) + 1
    assert ours.count_bytes(ids) == len(ours.decode(ids).encode()) == len(ours.to_bytes(ids))


@pytest.mark.parametrize("form", FORMS)
def test_streamed_text_is_the_decoded_text(made, form):
    ids = made[form].encode(PROSE).tolist()
    stream = made[form].stream()
    said = [stream(i) for i in ids]
    assert "".join(said) + stream.end() == made[form].decode(ids)
    assert "".join(said[: len(ids) // 2])  # while it comes, not all at the end


@pytest.mark.parametrize("form", BYTES)
@given(text=TEXT)
@settings(deadline=None)
def test_text_comes_back_from_tokens_of_bytes(made, form, text):
    text = text.replace("\u2581", "_") if form in SPELLED else text
    ids = made[form].encode(text)
    assert made[form].decode(ids) == text
    assert made[form].count_bytes(ids) == len(text.encode())


@pytest.mark.parametrize("form", BYTES)
@given(data=st.binary())
@settings(deadline=None)
def test_any_bytes_come_back(made, form, data):
    if form not in SPELLED or b"\xe2\x96\x81" not in data:
        assert made[form].to_bytes(made[form].encode(data)) == data


@pytest.mark.parametrize("form", FORMS)
def test_pieces_of_a_text_are_encoded_as_the_whole(made, form):
    text = (PROSE + "x") * 100  # no white space at the end of a piece that is not the last
    pieces = [text[a:b] for a, b in itertools.pairwise([0, 5, 70_000, 70_001, len(text)])]
    assert (
        np.concatenate(list(made[form].encode_all(pieces))).tolist()
        == made[form].encode(text).tolist()
    )


@pytest.mark.parametrize(
    ("form", "special"), [("gpt2", "<|endoftext|>"), ("llama", "<s>"), ("bert", "[MASK]")]
)
def test_no_text_is_a_special_token_of_theirs(made, form, special):
    one = made[form].library.token_to_id(special)
    ids = made[form].encode(f"it {special} stop").tolist()
    assert one not in ids
    assert made[form].decode([one, *made[form].encode("stop").tolist(), one]) == "stop"
    if form != "bert":
        assert made[form].decode(ids) == f"it {special} stop"


@pytest.mark.parametrize("form", FORMS)
def test_special_tokens_of_theirs_spell_nothing(made, form):
    """All but the one that unknown text becomes, which is shown."""
    one = made[form]
    special = [i for i, token in one.added.items() if token["special"] and i != one.unknown_id]
    ids = one.encode("it doesn't stop").tolist()
    assert one.to_bytes([*special, *ids, *special]) == one.to_bytes(ids)
    assert one.count_bytes(special) == 0


@pytest.mark.parametrize(
    ("form", "shown"), [("bert", "[UNK]"), ("t5", "<unk>"), ("words", "<unk>"), ("suffix", "<unk>")]
)
def test_what_it_does_not_know_is_counted_and_shown(made, form, shown):
    ids = made[form].encode("it 漢 stop.")
    assert (
        made[form].count_unknown(ids) == 1
        and made[form].count_unknown(made[form].encode("it stop.")) == 0
    )
    assert shown in made[form].decode(ids)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "bert"])
def test_words_begin_where_they_do(made, form):
    text = "The quick brown it doesn't stop."
    ids = made[form].encode(text)
    starts = np.flatnonzero(made[form].word_starts(ids))
    words = [made[form].decode(word).strip() for word in np.split(ids, starts[1:])]
    assert [word.replace(" ", "") for word in words] == (
        text.split() if form != "suffix" else _marks(text)
    )


def _marks(text):
    import re

    return re.findall(r"\w+|[^\w\s]", text)


@pytest.mark.parametrize("form", FORMS)
def test_its_file_is_kept_whole(made, form, tmp_path):
    made[form].save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    ids = made[form].encode(PROSE)
    assert again.encode(PROSE).tolist() == ids.tolist()
    assert again.decode(ids) == made[form].decode(ids)
    assert (again.vocab_size, again.unknown_id) == (made[form].vocab_size, made[form].unknown_id)


def test_a_decoder_that_replaces_by_a_pattern_is_left_to_the_library():
    from tokenizers import Regex, decoders

    made = built("gemma")
    made.decoder = decoders.Sequence(
        [decoders.Replace(Regex("\u2581+"), " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    assert rule_of(json.loads(made.to_str()), made.decoder) is None


def test_the_content_of_the_file_is_known(files, tmp_path):
    first, other = (Pretrained(path=str(files / form)).content() for form in ("bert", "t5"))
    (tmp_path / "mine.json").write_text(
        (files / "bert" / "tokenizer.json").read_text(encoding="utf-8"), encoding="utf-8"
    )
    assert Pretrained(path=str(tmp_path / "mine.json")).content() == first != other


# What is missing.


def test_a_directory_without_the_file(tmp_path):
    (tmp_path / "vocab.txt").touch()
    said = (
        f"tokenizer.path: must hold a tokenizer.json; '{tmp_path}' holds vocab.txt. Save it there,"
        " e.g. with transformers' AutoTokenizer.from_pretrained(...).save_pretrained(...)."
    )
    assert messages(
        TOKENIZERS.faults({"name": "pretrained", "path": str(tmp_path)}, "tokenizer", Context())
    ) == [said]
    with pytest.raises(ConfigError) as error:
        Pretrained(path=str(tmp_path))
    assert str(error.value) == said


@pytest.mark.parametrize("path", ["./none.json", "/no/where", "none.json", "a/b/c"])
def test_a_file_that_is_missing(path):
    assert messages(
        TOKENIZERS.faults({"name": "pretrained", "path": path}, "tokenizer", Context())
    ) == [
        "tokenizer.path: must be a tokenizer.json, a directory that holds one, or a name on the"
        f" hub; '{path}' is not there."
    ]


def test_a_name_on_the_hub_is_not_asked_for_while_a_config_is_checked(hub):
    assert not messages(
        TOKENIZERS.faults({"name": "pretrained", "path": "openai/gpt"}, "tokenizer", Context())
    )
    assert hub.asked == []


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"model": {"type": "BPE"}}'])
def test_a_file_that_is_another(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(
        ConfigError, match=r"^tokenizer\.path: '.*' must be a tokenizer\.json of the library"
    ):
        Pretrained(path=str(tmp_path))


class Hub:
    """In place of the network."""

    def __init__(self):
        self.asked, self.answer, self.cached, self.reached = [], "", False, None

    def __call__(self, name, file, local_files_only=False):
        self.asked.append((name, file, local_files_only))
        if local_files_only and not self.cached:
            import huggingface_hub

            missing = huggingface_hub.errors.LocalEntryNotFoundError
            raise missing.__new__(missing)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def metadata(self, url, timeout):
        if self.reached is not None:
            raise self.reached


@pytest.fixture
def hub(monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", made := Hub())
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", made.metadata)
    return made


def test_a_name_on_the_hub(hub, files):
    hub.answer = str(files / "gpt2" / "tokenizer.json")
    assert Pretrained(path="openai-community/gpt2").decode([]) == ""
    assert hub.asked == [
        ("openai-community/gpt2", "tokenizer.json", local) for local in (True, False)
    ]


def test_a_name_that_was_fetched_before_needs_no_network(hub, files):
    hub.answer, hub.cached = str(files / "gpt2" / "tokenizer.json"), True
    Pretrained(path="openai-community/gpt2")
    assert hub.asked == [("openai-community/gpt2", "tokenizer.json", True)]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "LocalEntryNotFoundError",
            (
                "it is no file here, the hub's cache on this machine has no tokenizer.json of it,"
                " and the hub cannot be reached"
            ),
        ),
        ("EntryNotFoundError", "the hub has this model, but no tokenizer.json in it."),
        ("RepositoryNotFoundError", "the hub has no such model, or it asks you to log in."),
        (None, "the hub did not give it (the line is cut)."),
    ],
)
def test_a_hub_that_does_not_give_it(hub, error, said):
    errors = pytest.importorskip("huggingface_hub.errors")
    kind = getattr(errors, error) if error else RuntimeError
    hub.answer = kind.__new__(kind)
    hub.answer.args = ("the line is cut",)
    with pytest.raises(ConfigError) as raised:
        Pretrained(path="some/model")
    assert str(raised.value).startswith(
        f"tokenizer.path: must be a tokenizer.json or a name on the hub; got 'some/model': {said}"
    )


@pytest.mark.parametrize("error", ["RepositoryNotFoundError", "EntryNotFoundError"])
def test_a_refusal_in_the_first_answer(hub, error):
    kind = getattr(pytest.importorskip("huggingface_hub.errors"), error)
    hub.reached = kind.__new__(kind)
    with pytest.raises(ConfigError, match="the hub has"):
        Pretrained(path="some/model")
    assert len(hub.asked) == 1


@pytest.fixture
def away(monkeypatch, tmp_path):
    """The library itself, with an empty cache; the hub is a port of this machine."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # which other tests set
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", at)
        form = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", at + form[1] + form[2])
        yield server


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_without_a_network_one_sentence_comes_at_once(away, monkeypatch, capfd, how):
    monkeypatch.setattr("xformer_kit.data.tokenizer.pretrained.WAIT", 0.5)
    if how == "refused":
        away.close()
    with pytest.raises(ConfigError) as raised:
        Pretrained(path="gpt2")
    assert capfd.readouterr() == ("", "")  # the library would write a line for each attempt
    (said,) = raised.value.messages
    refused = f"[Errno {errno.ECONNREFUSED}] {os.strerror(errno.ECONNREFUSED)}"
    reason = refused if how == "refused" else "no answer in 0.5 seconds"
    assert (
        said
        == "tokenizer.path: must be a tokenizer.json or a name on the hub; got 'gpt2': it is no"
        " file here, the hub's cache on this machine has no tokenizer.json of it, and the hub"
        f" cannot be reached ({reason}). Start once with a network, or copy the model's"
        " tokenizer.json here and set tokenizer.path to it."
    )
