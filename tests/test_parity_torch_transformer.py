"""The same weights give the same logits as torch.nn.Transformer and torch.nn.TransformerEncoder."""

import pytest
import torch
from torch import nn

from tests.peers import (
    ATTN,
    DIM,
    HEADS,
    IDS,
    LAYER_NORM,
    LAYERS,
    REAL,
    SMALL,
    SOURCE_REAL,
    SOURCES,
    WIDTH,
    State,
    close,
    loaded,
    randomised,
    renamed,
)
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, VOCAB


def torch_attention(prefix: str, theirs: str, state: State) -> State:
    """Queries, keys and values are one matrix in torch."""
    found = renamed(prefix, theirs, {"o": "out_proj"}, state)
    for component in ("weight", "bias"):
        values = state[f"{theirs}.in_proj_{component}"].chunk(3)
        found |= {
            f"{prefix}.{name}.{component}": value for name, value in zip("qkv", values, strict=True)
        }
    return found


def torch_stack(name: str, theirs: str, state: State, pre: bool) -> State:
    sublayers = {"attn": "self_attn"} | ({"cross": "multihead_attn"} if name == "decoder" else {})
    found: State = {}
    for i in range(LAYERS):
        block, them = f"{name}.{i}", f"{theirs}.layers.{i}"
        found |= renamed(block, them, {"ffn.up": "linear1", "ffn.down": "linear2"}, state)
        for their_norm, sublayer in enumerate([*sublayers, "ffn"], 1):
            ours = f"placement.{sublayer}.norm" + (".0" if pre else "")
            found |= renamed(block, them, {ours: f"norm{their_norm}"}, state)
        for our, their in sublayers.items():
            found |= torch_attention(f"{block}.{our}", f"{them}.{their}", state)
    return found | renamed(name, theirs, {"norm": "norm"}, state)


def torch_encoder(pre: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(DIM, HEADS, WIDTH, 0.0, batch_first=True, norm_first=pre)
    return nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(DIM), enable_nested_tensor=False)


def like_torch(model: str, pre: bool) -> dict:
    return tiny_config(
        model,
        attn=ATTN,
        position="none",
        norm=LAYER_NORM,
        placement="pre" if pre else "post",
        ffn={"name": "mlp", "width": WIDTH, "activation": "relu", "bias": True},
        head_transform=False,
        head_bias=False,
        final_norm=True,
        **SMALL,
    )


@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
@torch.no_grad()
def test_torch_transformer(pre):
    shape = (DIM, HEADS, LAYERS, LAYERS, WIDTH, 0.0)
    encoder = torch_encoder(pre)
    theirs = randomised(
        nn.Transformer(*shape, custom_encoder=encoder, batch_first=True, norm_first=pre)
    ).double()
    embed = torch.randn(VOCAB, DIM, dtype=torch.float64)
    state = theirs.state_dict()
    stacks = [torch_stack(name, name, state, pre) for name in ("encoder", "decoder")]
    ours = loaded(
        like_torch("encoder_decoder", pre), {"embed.weight": embed} | stacks[0] | stacks[1]
    )
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    expected = (
        theirs(
            embed[SOURCES],
            embed[IDS],
            tgt_mask=future,
            src_key_padding_mask=~SOURCE_REAL,
            tgt_key_padding_mask=~REAL,
            memory_key_padding_mask=~SOURCE_REAL,
        )
        @ embed.T
    )
    got = ours(source=SOURCES, target=IDS, source_real=SOURCE_REAL, target_real=REAL)
    close(got[REAL], expected[REAL])


@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
@torch.no_grad()
def test_torch_transformer_encoder(pre):
    theirs = randomised(torch_encoder(pre)).double()
    embed = torch.randn(VOCAB, DIM, dtype=torch.float64)
    state = {f"them.{name}": value for name, value in theirs.state_dict().items()}
    ours = loaded(
        like_torch("encoder", pre),
        {"embed.weight": embed} | torch_stack("encoder", "them", state, pre),
    )
    expected = theirs(embed[IDS], src_key_padding_mask=~REAL) @ embed.T
    close(ours(IDS, real=REAL)[REAL], expected[REAL])
