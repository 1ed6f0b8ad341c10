"""T5, whole: the same weights give the same logits."""

import pytest
import torch

from tests.messages import messages
from tests.peers import DIM, HEADS, LAYERS, SMALL, VOCAB, WIDTH, loaded, randomised, transformers
from tests.two_stack_peers import IDS, REAL, SOURCE_REAL, SOURCES
from xformer_kit.laws import faults, tiny_config

T5 = {"attn": "SelfAttention", "cross": "EncDecAttention", "ffn": "DenseReluDense"}


def t5_stack(name: str, state: dict) -> dict:
    found = {
        f"{name}.position.base.weight": state[
            f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        ]
    }
    for i in range(LAYERS):
        for at, sublayer in enumerate(
            ("attn", "cross", "ffn") if name == "decoder" else ("attn", "ffn")
        ):
            ours, theirs = f"{name}.{i}", f"{name}.block.{i}.layer.{at}"
            matrices = {"up": "wi", "down": "wo"} if sublayer == "ffn" else {n: n for n in "qkvo"}
            for our, their in matrices.items():
                found[f"{ours}.{sublayer}.{our}.weight"] = state[
                    f"{theirs}.{T5[sublayer]}.{their}.weight"
                ]
            found[f"{ours}.placement.{sublayer}.norm.0.weight"] = state[
                f"{theirs}.layer_norm.weight"
            ]
    return found | {f"{name}.norm.weight": state[f"{name}.final_layer_norm.weight"]}


@pytest.mark.parametrize("padded", [True, False])
@torch.no_grad()
def test_t5(padded):
    """Scores without a scale, one table of distances for a stack, and what the head reads times
    dim^-0.5, which the weight of our final norm takes. Their norms and softmax are of fp32.
    """
    config = transformers.T5Config(
        vocab_size=VOCAB,
        d_model=DIM,
        d_kv=10,
        d_ff=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        dropout_rate=0.0,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=10,
        attn_implementation="eager",
    )
    theirs = randomised(transformers.T5ForConditionalGeneration(config)).double()
    state = theirs.state_dict()
    mine = (
        {"embed.weight": state["shared.weight"]}
        | t5_stack("encoder", state)
        | t5_stack("decoder", state)
    )
    mine["decoder.norm.weight"] = mine["decoder.norm.weight"] * DIM**-0.5
    attn = {"name": "multi_head", "heads": HEADS, "kv_heads": None, "head_dim": 10, "scale": 1.0}
    components = {
        "attn": attn,
        "position": {"name": "t5", "buckets": 8, "longest": 10},
        "norm": {"name": "rms", "eps": 1e-6},
    }
    ffn = {"name": "mlp", "width": WIDTH, "activation": "relu", "bias": False}
    ours = loaded(
        tiny_config("encoder_decoder", placement="pre", ffn=ffn, **components, **SMALL), mine
    )
    real, source_real = (REAL, SOURCE_REAL) if padded else (None, None)
    masks = (
        {"attention_mask": SOURCE_REAL.long(), "decoder_attention_mask": REAL.long()}
        if padded
        else {}
    )
    expected = theirs(SOURCES, decoder_input_ids=IDS, **masks).logits
    got = ours(source=SOURCES, target=IDS, source_real=source_real, target_real=real)
    shown = REAL if padded else torch.ones_like(REAL)
    torch.testing.assert_close(
        got[shown], expected[shown], rtol=1e-5, atol=1e-5 * expected.abs().max().item()
    )


def test_farther_distances_than_have_buckets_of_their_own_are_needed():
    assert messages(faults(tiny_config(position={"name": "t5", "buckets": 8, "longest": 5}))) == []
    assert messages(faults(tiny_config(position={"name": "t5", "buckets": 8, "longest": 4}))) == [
        "position.longest: must be above 4; got 4. That is half the buckets."
    ]
