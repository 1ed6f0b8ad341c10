"""attn fourier, nystrom and linformer: equal to the published layers, text by text, and refused
where they cannot be.
"""

import os

import pytest
import torch
from refusing import refused
from torch import nn
from torch.testing import assert_close

from xformer_kit import ConfigError, compose
from xformer_kit.attention import ATTENTIONS
from xformer_kit.attention.mixing import rows
from xformer_kit.attention.nystrom import inverse
from xformer_kit.inspect.describe import describe
from xformer_kit.laws import LAWS, faults, tiny
from xformer_kit.laws.case import LENGTH, MAX_LEN, VOCAB, Case, randomise
from xformer_kit.model.build import build_model
from xformer_kit.model.tokens import Tokens

os.environ.setdefault("HF_HUB_OFFLINE", "1")

DIM = 36
DRAWN = Case(tiny(), "").ids


def made(attn, model="encoder", **more):
    built = build_model(
        tiny(model, attn=attn, position=more.pop("position", "none"), **more), VOCAB
    )
    randomise(built)
    return built.double().eval()


def layer(attn, length=12, **more):
    """An attention of a randomised model, with what it reads and what it gives."""
    model, held = made(attn, **more), []
    stack = model.stack
    stack.blocks[0].attn.register_forward_hook(lambda _, args, out: held.extend((args[0], out)))
    model(DRAWN[:, :length])
    return stack.blocks[0].attn, *held


def heads(x, size=10):
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


# The published layers, with the same weights.


@torch.no_grad()
def test_fourier_is_that_of_fnet():
    transformers = pytest.importorskip("transformers")
    from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

    _, x, out = layer("fourier")
    assert_close(out, FNetBasicFourierTransform(transformers.FNetConfig())(x)[0])


@torch.no_grad()
@pytest.mark.parametrize("conv", [None, 5])
@pytest.mark.parametrize("landmarks", [1, 3, 6])
def test_nystrom_is_that_of_nystromformer(landmarks, conv):
    transformers = pytest.importorskip("transformers")
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    node = {
        "name": "nystrom",
        "heads": 6,
        "head_dim": 6,
        "landmarks": landmarks,
        "conv": conv,
        "bias": True,
    }
    attn, x, out = layer(node)
    config = transformers.NystromformerConfig(
        hidden_size=DIM,
        num_attention_heads=6,
        num_landmarks=landmarks,
        segment_means_seq_len=12,
        conv_kernel_size=conv or 65,
    )
    theirs = NystromformerSelfAttention(config)
    theirs.init_option, theirs.conv_kernel_size = "exact", conv
    for ours, name in (("q", "query"), ("k", "key"), ("v", "value")):
        setattr(theirs, name, getattr(attn, ours))
    if conv:
        theirs.conv.weight = nn.Parameter(attn.filter[:, None, :, None])
    assert_close(out, attn.o(theirs.double()(x)[0]))


@torch.no_grad()
@pytest.mark.parametrize("share", ["none", "heads", "key_value"])
def test_linformer_by_its_equation(share):
    attn, x, out = layer({"name": "linformer", "rank": 5, "share": share})
    f = attn.e if share == "key_value" else attn.f
    assert attn.e.shape == (6 if share == "none" else 1, 5, MAX_LEN)
    q, k, v = (heads(m(x)) for m in (attn.q, attn.k, attn.v))
    each = []
    for head in range(6):
        e, g = (m[head if share == "none" else 0, :, :12] for m in (attn.e, f))
        weights = (q[:, head] @ (e @ k[:, head]).mT / 10**0.5).softmax(-1)  # (b, t, rank)
        each.append(weights @ (g @ v[:, head]))
    assert_close(out, attn.o(torch.cat(each, -1)))


# Small cases, and where they meet what is known.


@torch.no_grad()
def test_linformer_that_projects_nothing_is_multi_head():
    sizes = {"heads": 6, "head_dim": 10}
    ours, multi = (
        made({"name": "linformer", "rank": LENGTH, **sizes}),
        made({"name": "multi_head", "kv_heads": 6, **sizes}),
    )
    state = multi.state_dict()
    one = torch.eye(LENGTH, MAX_LEN).double()[None]
    ours.load_state_dict(state | {name: one for name in ours.state_dict() if name not in state})
    assert_close(ours(DRAWN), multi(DRAWN))


@torch.no_grad()
def test_nystrom_with_a_landmark_for_each_token_comes_near_multi_head():
    """K pinv(K) K = K, and the pseudo-inverse is the better found the longer it is looked for."""
    sizes = {"heads": 6, "head_dim": 10}
    multi, off = made({"name": "multi_head", "kv_heads": 6, **sizes}), []
    for iterations in (4, 12, 25):
        ours = made({"name": "nystrom", "landmarks": 64, "iterations": iterations, **sizes})
        ours.load_state_dict(multi.state_dict())
        off.append((ours(DRAWN) - multi(DRAWN)).abs().max().item())
    assert off[0] > off[1] > off[2]
    assert off[2] < 1e-6


def test_a_filter_of_nystrom_starts_as_torch_draws_convolutions():
    """Uniform in +- 1 / sqrt(tokens), with values of either sign."""
    built = build_model(tiny("encoder", attn={"name": "nystrom", "landmarks": 4, "conv": 9}), VOCAB)
    values = torch.cat([block.attn.filter.flatten() for block in built.stack.blocks])
    assert -1 / 3 < values.min() < -0.2
    assert 0.2 < values.max() < 1 / 3


def test_the_pseudo_inverse_of_matrices_with_empty_rows():
    a = torch.rand(2, 3, 5, 5, dtype=torch.float64).add(3 * torch.eye(5)).softmax(-1)
    a[0, :, 3:], a[0, :, :, 3:] = 0, 0
    assert_close(inverse(a, 20), torch.linalg.pinv(a), rtol=1e-6, atol=1e-6)
    assert inverse(a.bfloat16(), 6).dtype == torch.float32


def test_texts_come_apart_and_back():
    document = torch.tensor([[4, 4, 4, 7, 7, 7], [1, 2, 2, 2, 2, 3]])
    real = torch.tensor([[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]).bool()
    x = torch.arange(12.0).view(2, 6, 1)
    texts = rows(Tokens(document=document, real=real), 2)
    assert texts.apart(x)[..., 0].tolist() == [
        [1, 2, 0, 0],
        [3, 4, 0, 0],
        [0, 0, 0, 0],
        [6, 0, 0, 0],
        [7, 8, 9, 10],
        [11, 0, 0, 0],
    ]
    assert texts.length.tolist() == [2, 2, 0, 1, 4, 1]
    assert texts.documents.tolist() == [[4, 7, 0], [1, 2, 3]]
    assert_close(texts.back(texts.apart(x), 2), x * real[..., None])


# Under the laws.

NODES = [
    {"name": "fourier"},
    {"name": "linformer", "share": "none", "bias": True},
    {"name": "linformer", "share": "key_value"},
    {"name": "nystrom", "landmarks": 4, "conv": 3, "bias": True},
    {"name": "nystrom", "landmarks": 29},
]
SAID = ["documents", "padding", "batch", "gradients", "precision", "kernels"]


@pytest.mark.parametrize("node", NODES, ids=str)
def test_laws_of_an_encoder(node):
    config = tiny("encoder", attn=node, position="learned")
    assert not faults(config)
    for law in SAID:
        said = LAWS[law](config)
        assert said is None or "only `reference`" in said


@pytest.mark.parametrize("name", ["linformer", "nystrom"])
def test_a_rotation_keeps_its_law(name):
    """What is summed has been turned by distances alone."""
    config = tiny("encoder", attn=name, position="rotary")
    assert not faults(config)
    for law in ("shift", "padding", "documents"):
        assert LAWS[law](config) is None


@pytest.mark.parametrize("position", ["none", "rotary"])
def test_a_decoder_may_look_at_a_source_through_linformer(position):
    cross = {"name": "linformer", "rank": 5, "bias": True, "position": position}
    config = tiny("encoder_decoder", decoder={"cross": cross})
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
    past = build_model(tiny("encoder_decoder", decoder={"cross": cross}, layers=1), VOCAB).cache(
        2, LENGTH, 29
    )
    assert past.caches[0]["cross"].bytes == 2 * 2 * 6 * 5 * 10 * 4


@pytest.mark.parametrize("name", ["fourier", "linformer", "nystrom"])
def test_a_cache_takes_a_text_in_one_call(name):
    model = made(name, model="decoder", mask="full")
    past = model.cache(3, LENGTH)
    assert_close(model(DRAWN, cache=past), model(DRAWN))
    with pytest.raises(ConfigError, match="a mask sees the future"):
        model(DRAWN[:, :1], cache=past)


def test_a_text_longer_than_the_projection_is_refused():
    model = made({"name": "linformer"})
    ids = torch.zeros(1, MAX_LEN + 1, dtype=torch.long)
    for position in (None, torch.zeros_like(ids)):
        with pytest.raises(
            ConfigError,
            match=rf"model.max_len: the model's positions end at {MAX_LEN} tokens; got 30",
        ):
            model(ids, position=position)
    two = build_model(
        tiny("encoder_decoder", position="none", decoder={"cross": {"name": "linformer"}}), VOCAB
    )
    with pytest.raises(
        ConfigError, match=rf"model.max_len: the source's positions end at {MAX_LEN} tokens; got 30"
    ):
        two(source=ids, target=ids[:, :3])


ENCODER = "model=encoder task=masked_language_modeling position=learned "
REFUSED = {
    "attn=fourier": (
        "attn: fourier mixes all tokens of a text, and mask 'causal' hides some; fourier has no"
        " score of two tokens, into which position 'rotary' enters. Choose"
        " task=masked_language_modeling mask=full position=learned."
    ),
    "attn=fourier position=none": (
        "attn: fourier mixes all tokens of a text, and mask 'causal' hides some. Choose"
        " task=masked_language_modeling mask=full."
    ),
    "attn=nystrom": (
        "attn: nystrom mixes all tokens of a text, and mask 'causal' hides some. Choose"
        " task=masked_language_modeling mask=full."
    ),
    ENCODER + "attn=fourier kernel=sdpa": (
        "kernel: 'sdpa' cannot: attn 'fourier' has no scores, which sdpa computes. Use kernel=auto"
        " or kernel=reference."
    ),
    ENCODER + "attn=linformer position=alibi": (
        "attn: linformer has no score of two tokens, into which position 'alibi' enters. Choose"
        " position=rotary, position=learned or position=none."
    ),
    ENCODER + "attn=nystrom attn.conv=2 attn.landmarks=0": (
        "attn.landmarks: must be at least 1; got 0.\n"
        "attn.conv: must be odd, as many tokens before as behind; got 2. Try 3."
    ),
    ENCODER + "attn=nystrom attn.conv=0": "attn.conv: must be at least 1 token; got 0.",
    ENCODER + "attn=linformer attn.rank=0": "attn.rank: must be at least 1 key; got 0.",
    "model=encoder_decoder task=seq2seq model.decoder.cross.name=nystrom": (
        "model.decoder.cross: nystrom takes means over all tokens that ask, later ones too, which a"
        " decoder cannot. Choose model.decoder.cross.name=multi_head."
    ),
    "model=encoder_decoder task=seq2seq model.decoder.cross.name=fourier": (
        "model.decoder.cross: fourier has no queries that could look at a source. Choose"
        " model.decoder.cross.name=multi_head."
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words):
    assert refused(words) == REFUSED[words].splitlines()


def test_what_runs_on_no_kernel_is_described_so():
    config = compose((ENCODER + "attn=fourier model.dim=32 model.layers=1 logger=none").split())
    (choice,) = describe(config, 65).kernels
    assert (choice.kernel, choice.why) == ("none", ("fourier computes in a way of its own",))


def test_prototypes_are_as_many_as_the_segments_of_nystromformer_unless_told():
    transformers = pytest.importorskip("transformers")
    usual = transformers.NystromformerConfig().num_landmarks
    assert [ATTENTIONS.defaults(name)["landmarks"] for name in ("nystrom", "orthoformer")] == [
        usual,
        usual,
    ]
