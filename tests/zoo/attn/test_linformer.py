"""attn linformer: equal to its equation, under the laws, and refused where it cannot be."""

import os

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.attentions import DRAWN, encoder_layer, model_of
from xformer_kit import ConfigError
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, MAX_LEN, VOCAB
from xformer_kit.model.build import build_model

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def heads(x, size=10):
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


@torch.no_grad()
@pytest.mark.parametrize("share", ["none", "heads", "key_value"])
def test_linformer_by_its_equation(share):
    attn, x, out = encoder_layer({"name": "linformer", "rank": 5, "share": share})
    f = attn.e if share == "key_value" else attn.f
    assert attn.e.shape == (6 if share == "none" else 1, 5, MAX_LEN)
    q, k, v = (heads(m(x)) for m in (attn.q, attn.k, attn.v))
    each = []
    for head in range(6):
        e, g = (m[head if share == "none" else 0, :, :12] for m in (attn.e, f))
        weights = (q[:, head] @ (e @ k[:, head]).mT / 10**0.5).softmax(-1)  # (b, t, rank)
        each.append(weights @ (g @ v[:, head]))
    assert_close(out, attn.o(torch.cat(each, -1)))


@torch.no_grad()
def test_linformer_that_projects_nothing_is_multi_head():
    sizes = {"heads": 6, "head_dim": 10}
    ours, multi = (
        model_of({"name": "linformer", "rank": LENGTH, **sizes}, "encoder", position="none"),
        model_of({"name": "multi_head", "kv_heads": 6, **sizes}, "encoder", position="none"),
    )
    state = multi.state_dict()
    one = torch.eye(LENGTH, MAX_LEN).double()[None]
    ours.load_state_dict(state | {name: one for name in ours.state_dict() if name not in state})
    assert_close(ours(DRAWN), multi(DRAWN))


@pytest.mark.parametrize("position", ["none", "rotary"])
def test_a_decoder_may_attend_to_a_source_with_linformer(position):
    cross = {"name": "linformer", "rank": 5, "bias": True, "position": position}
    config = tiny_config("encoder_decoder", decoder={"cross": cross})
    assert not faults(config)
    for law in (
        "source",
        "source padding",
        "source once",
        "documents",
        "cache",
        "greedy",
        "kernels",
        "gradients",
    ):
        assert LAWS[law](config) is None


def test_a_cache_of_a_source_holds_what_it_was_projected_to():
    cross = {"name": "linformer", "rank": 5, "heads": 6, "head_dim": 10}
    past = build_model(
        tiny_config("encoder_decoder", decoder={"cross": cross}, layers=1), VOCAB
    ).cache(2, LENGTH, 29)
    assert past.caches[0]["cross"].bytes == 2 * 2 * 6 * 5 * 10 * 4


def test_a_text_longer_than_the_projection_is_refused():
    model = model_of({"name": "linformer"}, "encoder", position="none")
    ids = torch.zeros(1, MAX_LEN + 1, dtype=torch.long)
    for position in (None, torch.zeros_like(ids)):
        with pytest.raises(
            ConfigError,
            match=rf"model.max_len: the model's positions end at {MAX_LEN} tokens; got 30",
        ):
            model(ids, position=position)
    two = build_model(
        tiny_config("encoder_decoder", position="none", decoder={"cross": {"name": "linformer"}}),
        VOCAB,
    )
    with pytest.raises(
        ConfigError, match=rf"model.max_len: the source's positions end at {MAX_LEN} tokens; got 30"
    ):
        two(source=ids, target=ids[:, :3])


ENCODER = "model=encoder task=masked_language_modeling position=learned "

REFUSED = {
    ENCODER + "attn=linformer position=alibi": (
        "attn: linformer has no score of two tokens, into which position 'alibi' enters. Choose"
        " position=rotary, position=learned or position=none."
    ),
    ENCODER + "attn=linformer attn.rank=0": "attn.rank: must be at least 1 key; got 0.",
}


test_refused_configs = refusals(REFUSED)
