"""Options that change nothing are refused, those that change results are not."""

import pytest
import torch

from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import BATCH, VOCAB, randomise
from xformer_kit.model.build import build_model


def effects(pairs):
    """A test of (changes, other changes, whether both give the same output).

    The first is refused if they do; the second is allowed. Changes are those of a tiny config.
    """

    @pytest.mark.parametrize(("one", "other", "equal"), pairs)
    @torch.no_grad()
    def test(one, other, equal):
        configs = [tiny_config(**one), tiny_config(**other)]
        assert [bool(faults(config)) for config in configs] == [equal, False]
        found = []
        for config in configs:
            model = build_model(config, VOCAB).double().train()
            randomise(model)
            found.append(model(torch.arange(BATCH * 13).view(BATCH, 13) * 7 % VOCAB))
        assert torch.allclose(*found, rtol=1e-12, atol=1e-12) == equal

    return test
