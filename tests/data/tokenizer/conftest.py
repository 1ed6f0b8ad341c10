"""The files of tokenizers of every form, and the tokenizers that read them."""

import pytest

from tests.data.tokenizer.tokenizer_forms import FORMS, built
from xformer_kit.data.tokenizer import TOKENIZERS


@pytest.fixture(scope="session")
def tokenizer_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    for form in FORMS:
        (folder / form).mkdir()
        built(form).save(str(folder / form / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def pretrained(tokenizer_files):
    return {
        form: TOKENIZERS.create({"name": "pretrained", "path": str(tokenizer_files / form)})
        for form in FORMS
    }
