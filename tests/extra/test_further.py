"""Predictions of an extra without blocks: the next token, from what an early layer returns."""

import pytest
import torch
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.config import check
from xformer_kit.extra import EXTRAS, Extra, Prediction, from_memory, to_memory
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB, Composition
from xformer_kit.objective import objective_of
from xformer_kit.tensors.tokens import Tokens


@pytest.fixture(autouse=True)
def early_exit():
    @EXTRAS.register("early_exit")
    class EarlyExit(Extra):
        predictions = [Prediction("exit_loss", 1, 0.5)]

        def __init__(self):
            super().__init__()

        def after_layer(self, state, layer):
            return state, {} if layer.depth else to_memory(state, "first")

        def multi_token_states(self, state, last, layer):
            return {"": (from_memory(layer.memory, "first"), {})}

    yield
    EXTRAS.forget(EarlyExit.__module__)


@torch.no_grad()
def test_the_state_of_an_early_layer_is_read_and_its_loss_weighed():
    case = Composition(tiny_config(extra={"early_exit": {}}), "")
    model, found = case.model().train(), []
    model.decoder.observers.append(lambda depth, state: found.append(state))
    tokens = Tokens(ids=torch.randint(VOCAB, (2, 9), generator=torch.Generator().manual_seed(0)))
    seen, target = tokens.shifted()
    hidden, _ = model.hidden(seen, multi_token=True)
    assert_close(hidden[1], model.decoder.placement.finish(found[0], model.decoder.norm))
    _, count, report = objective_of(case.config).loss(model, {"tokens": tokens})
    early = model.head(hidden[1], target) / count
    assert_close(report["exit_loss"], early)
    assert_close(report["loss"], 0.5 * early)


def test_an_objective_that_does_not_train_it_refuses_it():
    config = tiny_config("encoder", extra={"early_exit": {}})
    assert messages(check(config, data=False)) == [
        "extra.early_exit: task 'masked_language_modeling' does not train its predictions. Leave it"
        " out, or choose task=language_modeling."
    ]
