"""What a config says of its data is answered before a run, in one sentence."""

import pytest
from refusals import refused

from xformer_kit.attention import ATTENTIONS
from xformer_kit.config import compose
from xformer_kit.data.corpus import CORPORA


@pytest.fixture
def files(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"a {i}\tb {i}\n" for i in range(50)))
    (tmp_path / "pairs.jsonl").write_text('{"source": "a", "target": "b"}\n')
    return tmp_path


def said(overrides):
    return "\n".join(refused(overrides))


@pytest.mark.extended
def test_tokenizer_shared_is_for_every_tokenizer(files):
    words = f"model=encoder_decoder task=seq2seq data=tsv data.path={files}/pairs.tsv"
    for tokenizer in ("byte", "char", "bpe"):
        assert (
            compose(f"{words} tokenizer={tokenizer} tokenizer.shared=true".split())["tokenizer"][
                "shared"
            ]
            is True
        )
    each = f"{words} tokenizer.shared=false"
    assert compose(f"{each} model.share_embeddings=false".split())["tokenizer"]["shared"] is False
    assert (
        said(each)
        == "tokenizer.shared: false gives source and target a vocabulary each, which one matrix"
        " cannot embed. Set model.share_embeddings=false, or tokenizer.shared=true."
    )
    assert (
        said(each.replace("encoder_decoder", "decoder"))
        == "tokenizer.shared: false gives source and target a vocabulary each, and the model has"
        " one stack. Leave it true."
    )
    assert (
        said("tokenizer.shared=false")
        == "tokenizer.shared: false is for source and target, and data=pydoc gives text. Leave it"
        " true."
    )
    fault = "tokenizer.shared: must be true or false; got 2. Try true."
    assert said(f"{words} tokenizer.shared=2") == fault


def test_settings_for_pairs_are_refused_where_there_are_none(files):
    assert said("data.batch_tokens=4096 data.too_long=drop").splitlines() == [
        "data.batch_tokens: is about pairs, and data=pydoc gives text. Leave it null.",
        "data.too_long: is about pairs, and data=pydoc gives text. Leave it null.",
    ]
    words = (
        f"model=encoder_decoder task=seq2seq data=tsv data.path={files}/pairs.tsv data.seq_len=64"
    )
    assert (
        compose(f"{words} data.batch_tokens=64 data.too_long=truncate".split())["data"][
            "batch_tokens"
        ]
        == 64
    )
    assert (
        said(f"{words} data.batch_tokens=63")
        == "data.batch_tokens: must hold one example of data.seq_len; got 63 and 64. Try 512, which"
        " holds 8 of the longest."
    )
    assert (
        said(f"{words} data.too_long=cut")
        == "data.too_long: must be error or drop or truncate or null; got 'cut'."
    )


def test_a_corpus_gives_what_its_options_say(files):
    words = f"data=jsonl data.path={files}/pairs.jsonl"
    found = said(words)
    assert found.startswith(
        "task: 'language_modeling' learns from text or labelled, and data=jsonl gives pairs. Set"
        " data.text=FIELD. Known for it: "
    )
    assert (
        "data=jsonl data.text=FIELD, " in found
        and "data=pydoc" in found
        and "data=tsv" not in found
    )
    assert compose([*words.split(), "data.text=source"])["data"]["text"] == "source"
    found = said(f"model=encoder_decoder task=seq2seq {words} data.text=source")
    assert "data=jsonl gives text" in found and "data=jsonl, " in found and "data=tsv" in found


def test_a_component_that_mixes_documents_is_refused_beside_data_documents(tmp_path):
    (tmp_path / "leaky.py").write_text(
        "from xformer_kit.attention import ATTENTIONS, HeadShape, MultiHead\n\n\n"
        "@ATTENTIONS.register('leaky')\n"
        "class Leaky(MultiHead):\n"
        "    breaks = {'documents': 'it mixes over the whole length.'}\n\n"
        "    def __init__(self, dim, norm, kernel, *, heads: int = 8):\n"
        "        super().__init__(dim, norm, kernel, shape=HeadShape(heads))\n"
    )
    words = f"components=[{tmp_path}/leaky.py] data=pydoc"
    try:
        assert compose(f"{words} attn=leaky".split())["attn"]["name"] == "leaky"
        for where, way in (
            ("attn", "attn=leaky"),
            ("model.decoder.attn", "model.decoder.attn.name=leaky"),
        ):
            assert (
                said(f"{words} {way} data.documents=true")
                == f"{where}: 'leaky' breaks the law of documents (it mixes over the whole length),"
                " which data.documents=true needs. Choose another attn."
            )
    finally:
        ATTENTIONS.forget(ATTENTIONS["leaky"].__module__)


@pytest.mark.extended
def test_what_a_run_would_not_read_is_refused_where_it_was_asked_for(files):
    probe = "is not read; data=recall is a probe"
    vocabulary = f"{probe}, whose words are its vocabulary. Leave it out."
    assert said("data=recall tokenizer=byte") == f"tokenizer: {vocabulary}"
    assert said("data=recall tokenizer.vocab_size=300") == f"tokenizer.vocab_size: {vocabulary}"
    assert (
        said("data=recall data.cache=here")
        == f"data.cache: {probe}, whose examples are made when they are needed and never kept."
        " Leave it out."
    )
    assert (
        compose(["data=recall"])["tokenizer"]["name"] == "bpe"
    )  # of the experiment: nobody asked for it
    words = f"model=encoder_decoder task=seq2seq data=tsv data.path={files}/pairs.tsv"
    assert (
        said(f"{words} data.batch_size=32 data.batch_tokens=2048")
        == "data.batch_size: is not read with data.batch_tokens; got 32 and 2048. Leave it out,"
        " or set data.batch_tokens=null."
    )


PROBES = [name for name, component in CORPORA.items() if component.form == "labelled"]


@pytest.mark.extended
@pytest.mark.parametrize("name", PROBES)
def test_every_probe_refuses_what_is_for_texts_and_pairs(name):
    for words, key in (
        ("data.batch_tokens=4096", "data.batch_tokens"),
        ("data.too_long=drop", "data.too_long"),
        ("data.documents=true", "data.documents"),
        ("tokenizer.shared=false", "tokenizer.shared"),
        ("tokenizer=char", "tokenizer"),
        ("data.cache=x", "data.cache"),
    ):
        faults = said(f"data={name} data.seq_len=4096 {words}").splitlines()
        assert faults[0].startswith(f"{key}: ") and f"data={name}" in faults[0], faults


def test_settings_of_texts_are_refused_for_pairs_and_the_reverse(files):
    pairs = f"model=encoder_decoder task=seq2seq data=tsv data.path={files}/pairs.tsv"
    able = ", ".join(f"data={name}" for name, corpus in sorted(CORPORA.items()) if corpus.documents)
    assert (
        said(f"{pairs} data.documents=true")
        == "data.documents: needs a text of documents, and data=tsv gives none. Set it to false,"
        f" or use {able}."
    )
    assert said("task=prefix_language_modeling data.documents=true").startswith(
        "data.documents: task=prefix_language_modeling does not keep documents apart. Set it to"
        " false, or use task="
    )
