"""What the attentions that mix all tokens of a text have in common."""

import os

import pytest
import torch
from torch.testing import assert_close

from tests.attentions import DRAWN, model_of
from xformer_kit import ConfigError
from xformer_kit.attention import ATTENTIONS
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import LENGTH
from xformer_kit.tensors.tokens import Tokens
from xformer_kit.zoo.attn._whole_text import text_rows

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def test_texts_come_apart_and_back():
    document = torch.tensor([[4, 4, 4, 7, 7, 7], [1, 2, 2, 2, 2, 3]])
    real = torch.tensor([[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]).bool()
    x = torch.arange(12.0).view(2, 6, 1)
    texts = text_rows(Tokens(document=document, real=real), 2)
    assert texts.to_rows(x)[..., 0].tolist() == [
        [1, 2, 0, 0],
        [3, 4, 0, 0],
        [0, 0, 0, 0],
        [6, 0, 0, 0],
        [7, 8, 9, 10],
        [11, 0, 0, 0],
    ]
    assert texts.length.tolist() == [2, 2, 0, 1, 4, 1]
    assert texts.documents.tolist() == [[4, 7, 0], [1, 2, 3]]
    assert_close(texts.from_rows(texts.to_rows(x), 2), x * real[..., None])


@pytest.mark.parametrize("name", ["linformer", "nystrom"])
def test_a_rotation_keeps_its_law(name):
    """Sums are over rotated keys, which depend only on distances."""
    config = tiny_config("encoder", attn=name, position="rotary")
    assert not faults(config)
    for law in ("shift", "padding", "documents"):
        assert LAWS[law](config) is None


@pytest.mark.parametrize("name", ["fourier", "linformer", "nystrom"])
def test_a_cache_takes_a_text_in_one_call(name):
    model = model_of(name, position="none", mask="full")
    past = model.cache(3, LENGTH + 1)
    assert_close(model(DRAWN, cache=past), model(DRAWN))
    with pytest.raises(ConfigError, match="a mask sees the future"):
        model(DRAWN[:, :1], cache=past)


def test_default_number_of_prototypes_is_that_of_nystromformer():
    transformers = pytest.importorskip("transformers")
    default_features = transformers.NystromformerConfig().num_landmarks
    assert [ATTENTIONS.defaults(name)["landmarks"] for name in ("nystrom", "orthoformer")] == [
        default_features,
        default_features,
    ]


@pytest.mark.parametrize(
    "node",
    [
        {"name": "fourier"},
        {"name": "linformer", "share": "none", "bias": True},
        {"name": "linformer", "share": "key_value"},
        {"name": "nystrom", "landmarks": 4, "conv": 3, "bias": True},
        {"name": "nystrom", "landmarks": 29},
    ],
    ids=str,
)
def test_laws_of_an_encoder(node):
    config = tiny_config("encoder", attn=node, position="learned")
    assert not faults(config)
    for law in ("documents", "padding", "batch", "gradients", "precision", "kernels"):
        broken = LAWS[law](config)
        assert broken is None or "only `reference`" in broken
