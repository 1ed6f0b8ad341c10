"""Heads under other names, of their own, or not there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from xformer_kit.parity.cases import CASES
from xformer_kit.parity.pairs import (
    distance,
    double,
    load,
    our_logits,
    their_logits,
    their_model,
)
from xformer_kit.pretrained import load_published
from xformer_kit.registry import ConfigError

pytest.importorskip("transformers")
pytestmark = pytest.mark.extended


def saved(name: str, folder: Path, **changes: Any) -> nn.Module:
    """Their model of a case with changes of its arguments, saved in a directory."""
    case = CASES[name]
    theirs = double(their_model(case._replace(config={**case.config, **changes})))
    theirs.save_pretrained(folder)
    return theirs


def change_config(folder: Path, **changes: Any) -> None:
    """Changes keys of a config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@torch.no_grad()
@pytest.mark.parametrize("name", ["t5 v1.1", "mt5", "umt5"])
def test_a_head_that_is_not_the_embedding(name, tmp_path):
    """Transformers does not tie what differs in a file, although its config would."""
    theirs = double(their_model(CASES[name]))
    theirs.lm_head.weight = nn.Parameter(theirs.lm_head.weight.roll(1, 0))
    theirs.all_tied_weights_keys.pop("lm_head.weight")
    theirs.save_pretrained(tmp_path)
    assert distance(our_logits(load_published(tmp_path)), their_logits(theirs)) < 1e-10
    change_config(tmp_path, tie_word_embeddings=False)  # as in the files of Google
    theirs = double(load(tmp_path, torch.float64))
    assert distance(our_logits(load_published(tmp_path)), their_logits(theirs)) < 1e-10


@torch.no_grad()
def test_the_later_name_of_debertas_head(tmp_path):
    theirs = saved("deberta", tmp_path, legacy=False)
    assert distance(our_logits(load_published(tmp_path)), their_logits(theirs)) < 1e-10


@torch.no_grad()
def test_an_old_file_of_bert(tmp_path):
    """With other names of norms, the head's matrix once more, and parts that are not used."""
    theirs = saved("bert", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in tensors.items()
    }
    tensors |= {
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.seq_relationship.bias": torch.zeros(2),
        "bert.pooler.dense.bias": torch.zeros(48),
        "bert.embeddings.position_ids": torch.arange(29)[None],
    }
    save_file(tensors, tmp_path / "model.safetensors")
    change_config(tmp_path, directionality="bidi", gradient_checkpointing=False)
    assert distance(our_logits(load_published(tmp_path)), their_logits(theirs)) < 1e-10


@torch.no_grad()
def test_a_file_of_bart_without_a_bias_of_the_logits(tmp_path):
    theirs = saved("bart", tmp_path)
    theirs.final_logits_bias.zero_()
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["final_logits_bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    assert distance(our_logits(load_published(tmp_path)), their_logits(theirs)) < 1e-10


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("bert", "is_decoder", True),
        ("albert", "inner_group_num", 2),
        ("deberta", "share_att_key", False),
        ("deberta", "conv_kernel_size", 3),
        ("modernbert", "layer_types", ["sliding_attention", *["full_attention"] * 4]),
        ("bart", "num_hidden_layers", 7),
        ("t5", "feed_forward_proj", "gated-sine"),
    ],
)
def test_a_value_that_cannot_be_composed_is_refused(name, key, value, tmp_path):
    saved(name, tmp_path)
    change_config(tmp_path, **{key: value})
    with pytest.raises(ConfigError, match=rf"config\.json: {key}"):
        load_published(tmp_path)
