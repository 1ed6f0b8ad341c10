"""The plan of a config is computed once for all its readers."""

from collections import Counter
from copy import deepcopy

import pytest

from xformer_kit import build, compose
from xformer_kit.inspect.describe import describe
from xformer_kit.inspect.explain import explain
from xformer_kit.mask import MASKS, Mask
from xformer_kit.plan import from_config, model_plan


@pytest.fixture
def planned(monkeypatch):
    """Stack -> how many times it was planned."""
    found, plan = Counter(), from_config.stack_plan

    def counted(config, name):
        found[name] += 1
        return plan(config, name)

    monkeypatch.setattr(from_config, "stack_plan", counted)
    from_config._kept_plan.cache_clear()
    return found


def test_check_build_describe_and_explain_read_one_plan(planned):
    config = compose(["model=encoder_decoder", "task=seq2seq", "data=scan", "model.layers=1"])
    build(config, vocab_size=17)
    describe(config, vocab_size=17)
    explain(config)
    assert planned == {"encoder": 1, "decoder": 1}


def test_a_config_that_is_changed_has_another_plan(planned):
    config = compose(["model.layers=1"])
    first = model_plan(config)
    kept = deepcopy(first.init)
    config["init"]["name"] = "changed"
    config["model"]["layers"] = 3
    assert len(model_plan(config).output.blocks) == 3
    assert first.init == kept and len(first.output.blocks) == 1
    assert planned == {"decoder": 2}


def test_registering_a_component_renews_the_plan(planned):
    config = compose(["model.layers=1"])
    MASKS.register("planned_anew")(type("PlannedAnew", (Mask,), {"__doc__": "None."}))
    try:
        model_plan(config)
        assert planned == {"decoder": 2}
    finally:
        MASKS.forget(__name__)
