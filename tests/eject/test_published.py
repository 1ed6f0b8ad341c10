"""The ejected file of each published architecture equals its model bit for bit."""

import json

import pytest
import torch

from tests.eject.compared import pair, unequal
from xformer_kit.parity.cases import CASES
from xformer_kit.pretrained import composition_of

transformers = pytest.importorskip("transformers")
# Rows of an expert start at multiples of 16 bytes, as in models of use: the last digit of other
# products depends on addresses in memory.
EXPERT_WIDTH = 16
EXPERT_KEYS = ("moe_intermediate_size", "intermediate_size", "shared_expert_intermediate_size")


def composition(name: str):
    case = CASES[name]
    cls = getattr(transformers, case.architecture)
    config = dict(case.config)
    if any("experts" in key for key in config):
        config |= {key: EXPERT_WIDTH for key in EXPERT_KEYS if key in config}
    keys = cls.config_class(**config).to_dict() | {"architectures": [case.architecture]}
    return composition_of(json.loads(json.dumps(keys, default=str)))


@pytest.mark.parametrize("name", CASES, ids=lambda name: name.replace(" ", "-"))
def test_logits_and_gradients(name):
    found = composition(name)
    for dtype in (torch.float32, torch.float64):
        ours, theirs, _ = pair(found.config, found.vocab_size, found.source_vocab_size, dtype)
        assert unequal(ours, theirs) == []
