"""Sublayers that are skipped at random in training."""

import pytest
import torch
from torch.testing import assert_close

from xformer_kit.extra import ExtraInput
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import BATCH, Composition
from xformer_kit.model.block import BlockInput
from xformer_kit.tensors.tokens import UNKNOWN


def test_stochastic_depth_skips_rows_more_often_in_later_layers():
    config = tiny_config(
        extra={"stochastic_depth": {"rate": 0.6}},
        decoder={"layout": ["ffn"]},
        layers=3,
        placement="none",
        final_norm=False,
    )
    stack = Composition(config, "").model().train().decoder
    keep = stack.extra["stochastic_depth"].keep
    assert_close(keep, torch.tensor([0.8, 0.6, 0.4], dtype=torch.float64))
    seen = []
    for depth, block in enumerate(stack.blocks):
        x = torch.ones(4000, 1, 36, dtype=torch.float64)
        with torch.no_grad():
            given = ExtraInput(UNKNOWN, UNKNOWN, memory={"keep": keep[depth]})
            layer = BlockInput(extras={"stochastic_depth": given})
            (y,), _, _ = block.train()((x,), layer)
            stack.extra.eval()
            (whole,), _, _ = block((x,), layer)
            stack.extra.train()
        stayed = (y != x).any(-1)[:, 0]
        assert_close((y - x)[stayed] * keep[depth], (whole - x)[stayed])  # so that the mean stays
        seen.append(stayed.double().mean().item())
    assert seen == pytest.approx([0.8, 0.6, 0.4], abs=0.04)


def test_stochastic_depth_is_off_in_evaluation_and_follows_the_generator():
    config = tiny_config(extra={"stochastic_depth": {"rate": 0.5}})
    case, off = Composition(config, ""), Composition(tiny_config(), "")
    model = case.model()
    assert_close(case.hidden(model, case.ids), off.hidden(off.model(), case.ids), rtol=0, atol=0)
    model.train()
    outputs = []
    for seed in (1, 1, 2):
        torch.default_generator.manual_seed(seed)
        outputs.append(case.hidden(model, case.ids))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert outputs[0].shape[0] == BATCH
