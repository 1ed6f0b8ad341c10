"""Separate documents of a text: in files, in windows, in the loss, and their errors."""

import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from torch.testing import assert_close

from xformer_kit import compose
from xformer_kit.data import collate, prepare
from xformer_kit.data.preparation.documents import document_numbers, write_tokens
from xformer_kit.data.tokenizer import Word
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import randomise
from xformer_kit.model.build import build_model
from xformer_kit.objective import objective_of
from xformer_kit.registry import ConfigError

TEXTS = [f"Text {i} says {'so ' * (i % 7)}much." for i in range(120)]


@pytest.fixture
def config(tmp_path):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (tmp_path / "texts.jsonl").write_text(lines, encoding="utf-8")
    data = {
        "name": "jsonl",
        "path": str(tmp_path / "texts.jsonl"),
        "text": "text",
        "valid": 0.2,
        "seq_len": 32,
    }
    return {
        "data": data | {"cache": str(tmp_path / "cache"), "documents": True},
        "tokenizer": {"name": "byte"},
    }


def test_document_numbers_have_the_expected_values():
    starts = np.array([0, 3, 4, 9])
    assert document_numbers(starts, 0, 6).tolist() == [0, 0, 0, 1, 2, 2]
    assert document_numbers(starts, 3, 11).tolist() == [0, 1, 1, 1, 1, 1, 2, 2]


def test_each_token_of_a_document_but_its_first_is_predicted_once(config):
    data = prepare(config)
    for windows in (data.train, data.valid):
        documents = [
            component + "\n\n"
            for component in data.tokenizer.decode(windows.ids).split("\n\n")[:-1]
        ]
        assert windows.documents == len(documents) == len(windows.starts) > 10
        assert (
            windows.starts.tolist()
            == np.cumsum([0, *(len(text) for text in documents[:-1])]).tolist()
        )
        predicted = [collate([windows[i]])["tokens"].shifted()[1] for i in range(len(windows))]
        predicted = torch.cat([targets[targets >= 0] for targets in predicted])
        assert len(predicted) == windows.predicted
    expected = "".join(text[1:] for text in documents)  # of validation, which is whole
    assert data.tokenizer.decode(predicted.tolist()) == expected
    assert windows.bytes == len(expected)
    assert windows.bytes_per_token == 1.0


@given(texts=st.lists(st.text("ab é\n\u3000"), max_size=5))
@settings(deadline=None)
def test_white_space_and_unknown_words_have_their_bytes(tmp_path_factory, texts):
    """All bytes of the text that was read, but those of a first token: nothing predicts it."""
    words = Word()
    words.fit(["a ab"])
    folder = tmp_path_factory.mktemp("fresh")
    by_document = write_tokens(folder / "documents.bin", words, texts, True)
    joined = write_tokens(folder / "text.bin", words, ["".join(texts)], False)
    first = re.compile(r"^\s*\S*(\s+$)?")  # with the white space after it at the end of a text
    assert by_document["bytes"] == sum(len(first.sub("", text).encode()) for text in texts)
    assert by_document["documents"] == sum(bool(text.strip()) for text in texts)
    assert joined["tokens"] == len("".join(texts).split())
    if joined["tokens"] > 1:
        assert joined["bytes"] == len(first.sub("", "".join(texts)).encode())


def test_without_data_documents_the_text_has_another_fingerprint(config):
    separate = prepare(config)
    joined = prepare(config | {"data": config["data"] | {"documents": False}})
    assert "tokens.document" not in joined.train[0]
    assert joined.fingerprint != separate.fingerprint
    assert (
        joined.train.ids.tolist() == separate.train.ids.tolist()
    )  # of bytes, which no boundary changes


@torch.no_grad()
def test_the_loss_of_a_packed_text_is_the_sum_over_its_documents(config):
    data = prepare(config)
    run = tiny_config() | {"task": {"name": "language_modeling"}}
    objective, model = objective_of(run), build_model(run, 256)
    randomise(model)
    model = model.double().eval()
    window = data.train[0]
    nats, count, _ = objective.loss(
        model, collate([{name: values[:29] for name, values in window.items()}])
    )
    expected, predicted = 0.0, 0
    for number in np.unique(window["tokens.document"][:29]):  # by hand, each document by itself
        ids = torch.tensor(window["tokens"][:29][window["tokens.document"][:29] == number])[None]
        log_probabilities = (
            model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None])
            if ids.shape[1] > 1
            else torch.zeros(0)
        )
        expected, predicted = (
            expected - log_probabilities.sum(),
            predicted + log_probabilities.numel(),
        )
    assert_close(nats, expected)
    assert count == predicted < 28


@pytest.mark.extended
def test_texts_without_documents_and_tasks_that_do_not_keep_them_are_refused_with_the_way_out():
    with pytest.raises(
        ConfigError,
        match=r"^data\.documents: needs a text of documents, and data=scan gives none\. Set",
    ):
        compose(
            [
                "task=seq2seq",
                "model=encoder_decoder",
                "data=scan",
                "data.documents=true",
                "logger=none",
            ]
        )
    assert refused(
        "task=denoising model=encoder_decoder data=pydoc data.documents=true logger=none"
    ) == [
        "data.documents: task=denoising does not keep documents apart. Set it to false, or use"
        " task=language_modeling, task=masked_language_modeling."
    ]
    assert refused("data=text data.path=README.md data.documents=true logger=none") == [
        "data.documents: needs a text of documents, and data=text gives none. Set it to false, or"
        " use data=csv, data=hub, data=jsonl, data=parquet, data=pydoc, data=stdlib_code."
    ]
    assert compose(["data=pydoc", "data.documents=true", "logger=none"])["data"]["documents"]
