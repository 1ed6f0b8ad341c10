"""init_from of a model without tokenizer.json: of transformers, and imported."""

import os

import pytest

from tasks.cli import main
from tasks.run.early_checks import check_sources
from tests.forked_train import train
from xformer_kit import ConfigError, build, compose
from xformer_kit.export import save_published

WORDS = ["preset=llama3", "model.dim=24", "model.layers=2", "attn.heads=4", "model.max_len=64"]
WORDS += ["data.seq_len=64", "ffn.width=40", "model.vocab_size=300"]


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """The directory of a model without a tokenizer, and the run that it was imported to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = compose(WORDS, data=False)
    save_published(tmp_path / "model", build(config), config)
    assert main(["import", str(tmp_path / "model"), "--output", str(tmp_path / "run")]) == 0
    return tmp_path / "model", tmp_path / "run"


def test_a_tokenizer_must_be_chosen_that_is_not_fitted(sources):
    for source in sources:
        words = [f"init_from={source}", "data.seq_len=16"]
        check_sources([compose([*words, "tokenizer=byte"], data=False)])
        for more in ([], ["tokenizer=char"]):
            with pytest.raises(ConfigError) as error:
                check_sources([compose([*words, *more], data=False)])
            assert error.value.messages == (
                f"{source}: has no tokenizer.json. Save the model's tokenizer there, or choose one,"
                " such as tokenizer=byte.",
            )


@pytest.mark.extended
def test_the_rows_of_the_tokens_are_copied(sources, tmp_path):
    (tmp_path / "text.txt").write_text("some text. " * 500)
    for at, source in enumerate(sources):
        words = [f"init_from={source}", "tokenizer=byte", "data=text", "data.seq_len=16"]
        words += [f"data.path={tmp_path}/text.txt", "trainer.max_steps=1", "trainer.sample=false"]
        done = train([*words, f"hydra.run.dir={tmp_path}/{at}"], tmp_path, dict(os.environ))
        assert done.returncode == 0, done.stderr
        assert f"Starting from {source} (imported): " in done.stdout + done.stderr
