"""Tokenizers on the hub: from the cache, with a network, and without one."""

import errno
import os
import socket

import pytest

from tests.messages import messages
from xformer_kit.data.tokenizer import TOKENIZERS, Pretrained
from xformer_kit.registry import ConfigError, Context


def test_checking_a_config_does_not_fetch_from_the_hub(hub):
    assert not messages(
        TOKENIZERS.faults({"name": "pretrained", "path": "openai/gpt"}, "tokenizer", Context())
    )
    assert hub.asked == []


class Hub:
    """A replacement of the functions that use the network."""

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


def test_a_name_on_the_hub_is_fetched(hub, tokenizer_files):
    hub.answer = str(tokenizer_files / "gpt2" / "tokenizer.json")
    assert Pretrained(path="openai-community/gpt2").decode([]) == ""
    assert hub.asked == [
        ("openai-community/gpt2", "tokenizer.json", local) for local in (True, False)
    ]


def test_a_cached_name_needs_no_network(hub, tokenizer_files):
    hub.answer, hub.cached = str(tokenizer_files / "gpt2" / "tokenizer.json"), True
    Pretrained(path="openai-community/gpt2")
    assert hub.asked == [("openai-community/gpt2", "tokenizer.json", True)]


REFUSED = (
    "tokenizer.path: must be a tokenizer.json or a name on the hub; got '{}', which is no local"
    " file, and the hub did not give it ({}). Give the path of a tokenizer.json, or start once with"
    " a network."
)


@pytest.mark.parametrize(
    "error", ["LocalEntryNotFoundError", "EntryNotFoundError", "RepositoryNotFoundError", None]
)
def test_an_error_of_the_hub_is_one_sentence(hub, error):
    errors = pytest.importorskip("huggingface_hub.errors")
    kind = getattr(errors, error) if error else RuntimeError
    hub.answer = kind.__new__(kind)
    hub.answer.args = ("the line is cut",)
    with pytest.raises(ConfigError) as raised:
        Pretrained(path="some/model")
    assert str(raised.value) == REFUSED.format("some/model", "the line is cut")


@pytest.mark.parametrize("error", ["RepositoryNotFoundError", "EntryNotFoundError"])
def test_an_error_in_the_first_answer_ends_the_attempts(hub, error):
    kind = getattr(pytest.importorskip("huggingface_hub.errors"), error)
    hub.reached = kind.__new__(kind)
    with pytest.raises(ConfigError, match="the hub did not give it"):
        Pretrained(path="some/model")
    assert len(hub.asked) == 1


@pytest.fixture
def unreachable_hub(monkeypatch, tmp_path):
    """The real library with an empty cache; the hub is a port of this machine."""
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
def test_without_a_network_one_sentence_comes_after_one_wait(
    unreachable_hub, monkeypatch, capfd, how
):
    monkeypatch.setattr("xformer_kit.data.tokenizer.pretrained.WAIT", 0.5)
    if how == "refused":
        unreachable_hub.close()
    with pytest.raises(ConfigError) as raised:
        Pretrained(path="gpt2")
    assert capfd.readouterr() == ("", "")  # the library would write a line for each attempt
    (sentence,) = raised.value.messages
    refused = f"[Errno {errno.ECONNREFUSED}] {os.strerror(errno.ECONNREFUSED)}"
    reason = refused if how == "refused" else "timed out"
    assert sentence == REFUSED.format("gpt2", reason)
