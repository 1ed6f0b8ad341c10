"""Files with a head of their own, which transformers does not tie although its config would."""

import json

import pytest
import torch

from tests.hub.cases import CASES
from tests.hub.pairs import distance, double, load, our_logits, their_logits, their_model
from xformer_kit.pretrained import load_published

pytestmark = pytest.mark.extended


@torch.no_grad()
@pytest.mark.parametrize("name", ["t5 v1.1", "mt5", "umt5"])
def test_a_head_that_is_not_the_embedding(name, tmp_path):
    theirs = double(their_model(CASES[name]))
    theirs.lm_head.weight = torch.nn.Parameter(theirs.lm_head.weight.roll(1, 0))
    theirs.all_tied_weights_keys.pop("lm_head.weight")
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["tie_word_embeddings"] = False  # as in the files of Google
    (tmp_path / "config.json").write_text(json.dumps(config))
    theirs = double(load(tmp_path, torch.float64))
    assert distance(our_logits(load_published(tmp_path)), their_logits(theirs)) < 1e-10
