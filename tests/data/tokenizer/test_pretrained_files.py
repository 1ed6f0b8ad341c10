"""A pretrained tokenizer.json is saved with a run and fingerprinted by content; path errors."""

import pytest

from tests.data.tokenizer.tokenizer_forms import FORMS, PROSE
from tests.messages import messages
from xformer_kit.data.tokenizer import TOKENIZERS, Pretrained, load_tokenizer
from xformer_kit.registry import ConfigError, Context


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_tokenizer_is_read_back_the_same(pretrained, form, tmp_path):
    pretrained[form].save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    ids = pretrained[form].encode(PROSE)
    assert again.encode(PROSE).tolist() == ids.tolist()
    assert again.decode(ids) == pretrained[form].decode(ids)
    assert (again.vocab_size, again.unknown_id) == (
        pretrained[form].vocab_size,
        pretrained[form].unknown_id,
    )


def test_content_depends_on_the_text_of_the_file_and_not_on_its_path(tokenizer_files, tmp_path):
    first, other = (
        Pretrained(path=str(tokenizer_files / form)).file_hash for form in ("bert", "t5")
    )
    (tmp_path / "mine.json").write_text(
        (tokenizer_files / "bert" / "tokenizer.json").read_text(encoding="utf-8"), encoding="utf-8"
    )
    assert Pretrained(path=str(tmp_path / "mine.json")).file_hash == first != other


def test_a_directory_without_the_file_is_refused(tmp_path):
    (tmp_path / "vocab.txt").touch()
    sentence = (
        f"tokenizer.path: must hold a tokenizer.json; got '{tmp_path}'. Save it there,"
        " e.g. with AutoTokenizer.from_pretrained(...).save_pretrained(...)."
    )
    assert messages(
        TOKENIZERS.faults({"name": "pretrained", "path": str(tmp_path)}, "tokenizer", Context())
    ) == [sentence]
    with pytest.raises(ConfigError) as error:
        Pretrained(path=str(tmp_path))
    assert str(error.value) == sentence


@pytest.mark.parametrize("path", ["./none.json", "/no/where", "none.json", "a/b/c"])
def test_a_missing_file_is_refused(path):
    assert messages(
        TOKENIZERS.faults({"name": "pretrained", "path": path}, "tokenizer", Context())
    ) == [
        "tokenizer.path: must be a tokenizer.json, a directory that holds one, or a name on the"
        f" hub; got '{path}', which is not there."
    ]


@pytest.mark.parametrize(
    "content", ["", "{}", "not json", '{"model": {"type": "BPE"}}', '{"a": 0}']
)
def test_a_file_of_another_format_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    said = r"^tokenizer\.path: must be a tokenizer\.json of the library tokenizers; got '.*' \("
    said += "it has no key model" * (content.startswith("{") and '"model"' not in content)
    with pytest.raises(ConfigError, match=said):
        Pretrained(path=str(tmp_path))
