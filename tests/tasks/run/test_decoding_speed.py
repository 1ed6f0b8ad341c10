"""trainer.decode_tokens: how fast a trained model writes, as a figure of the run."""

import json

import pytest

from tasks.run.decoding_speed import ROUNDS, check_decodable
from xformer_kit import compose
from xformer_kit.model.model import Model
from xformer_kit.registry import ConfigError
from xformer_kit.study.metric import metric


def test_each_round_generates_decode_tokens_tokens(begin, monkeypatch):
    shapes, generate = [], Model.generate

    def record_shape(model, ids, **options):
        generated = generate(model, ids, **options)
        shapes.append(tuple(generated.shape))
        return generated

    monkeypatch.setattr(Model, "generate", record_shape)
    code, run = begin("timed", "trainer.decode_tokens=5", "trainer.max_steps=2")
    results = json.loads((run / "summary.json").read_text())
    assert code == 0 and results["decoding_tokens_per_second"] > 0
    assert shapes.count((8, 6)) == 1 + ROUNDS  # 8 texts, of one token and five more
    assert metric("decoding_tokens_per_second").higher_is_better


def test_models_that_cannot_generate_so_many_tokens_are_refused_before_the_first_step(
    begin, capsys
):
    code, run = begin("long", "position=learned", "trainer.decode_tokens=16")
    assert code == 2 and not run.exists()
    assert (
        "trainer.decode_tokens: must be below the 16 tokens that the model's positions allow"
        in capsys.readouterr().err
    )
    with pytest.raises(ConfigError, match=r"^trainer\.decode_tokens: an encoder without a decoder"):
        check_decodable(
            {"trainer": {"decode_tokens": 4}, "model": {"encoder": {}}}, Model.__new__(Model)
        )
    with pytest.raises(ConfigError, match=r"^trainer\.decode_tokens: must be at least 0; got -1\."):
        compose(["trainer.decode_tokens=-1"])
