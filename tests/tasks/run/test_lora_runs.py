"""Runs that train adapters, lora.rank."""

import json

import pytest
import torch

from tasks.run.resume import resume_run
from tests.test_resume import same, state
from xformer_kit.api import load

pytestmark = pytest.mark.extended
LORA = ["lora.rank=2", "lora.alpha=6", "lora.dropout=0.1", "schedule=constant"]


def test_a_run_of_adapters_keeps_its_base_resumes_exactly_and_is_a_base_itself(begin):
    _, base = begin("base")
    weights = load(base).state_dict()
    words = [*LORA, f"init_from={base}"]
    _, long = begin("long", *words, "trainer.max_steps=30")
    _, run = begin("run", *words)
    assert resume_run(run, max_steps=30) == 0
    for key in ("state_dict", "optimizer"):
        assert same(state(long)[key], state(run)[key]), key
    saved = state(run)["state_dict"]
    for name, value in weights.items():
        assert torch.equal(saved[name], value), name
    merged = load(run, checkpoint="last").state_dict()
    assert merged.keys() == weights.keys()
    changed = {name for name, value in weights.items() if not torch.equal(merged[name], value)}
    assert changed and all(name.endswith(("attn.q.weight", "attn.v.weight")) for name in changed)
    code, again = begin("again", f"init_from={run}/checkpoints/last.ckpt", "optim.lr=1e-30")
    assert code == 0
    for name, value in state(again)["state_dict"].items():
        torch.testing.assert_close(value, merged[name])


@pytest.mark.parametrize(
    "words",
    [
        ["ffn=moe", "ffn.experts=4", "ffn.router=sigmoid", "ffn.router.correction=0.1"],
        ["experiment=ngpt", "optim.weight_decay=0.1"],
        ["model=encoder_decoder", "task=denoising"],
    ],
    ids=lambda words: words[0],
)
def test_only_adapters_change_in_a_run_of_any_composition(begin, words):
    """Also not the corrections of a router, nor matrices of length 1. Loads of the last step are
    not weights.
    """
    short = [*words, "trainer.max_steps=3", "trainer.val_every=null"]
    _, base = begin("base", *short)
    weights = load(base).state_dict()
    adapters = ["lora.rank=2", "lora.of=['*']", "optim.lr=0.1", "optim.weight_decay=0.1"]
    code, run = begin("run", *short, *adapters, f"init_from={base}")
    assert code == 0
    saved = state(run)["state_dict"]
    for name, value in weights.items():
        assert "relative_load" in name or torch.equal(saved[name], value), name
    assert all(saved[name].any() for name in saved if name.endswith("lora_b"))
    assert json.loads((run / "init_from.json").read_text())["missing"] == []
