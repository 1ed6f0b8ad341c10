"""The same weights give the same logits as GPT-2 and Llama in transformers."""

import pytest
import torch

from tests.peers import (
    ATTN,
    DIM,
    HEADS,
    LAYER_NORM,
    LAYERS,
    POSITIONS,
    SMALL,
    VOCAB,
    WIDTH,
    close,
    close_gradients,
    llama_state,
    loaded,
    randomised,
    transformers,
)
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import LENGTH


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCAB,
        n_positions=POSITIONS,
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=WIDTH,
        activation_function="gelu_new",
        attn_implementation="eager",
    )
    theirs = randomised(transformers.GPT2LMHeadModel(config))
    ours = tiny_config(
        attn=ATTN,
        position="learned",
        norm=LAYER_NORM,
        ffn={"name": "mlp", "width": WIDTH, "activation": "gelu_tanh", "bias": True},
        **SMALL,
    )
    return theirs, loaded(ours, gpt2_state(theirs.state_dict()))


def gpt2_state(theirs):
    """Their Conv1D holds weights as (in, out), and queries, keys and values in one."""
    state = {
        "embed.weight": theirs["transformer.wte.weight"],
        "decoder.position.base.weight": theirs["transformer.wpe.weight"],
    }
    for component in ("weight", "bias"):
        state[f"decoder.norm.{component}"] = theirs[f"transformer.ln_f.{component}"]
        for i in range(LAYERS):
            block, them = f"decoder.{i}", f"transformer.h.{i}"
            qkv = theirs[f"{them}.attn.c_attn.{component}"].chunk(3, -1)
            state |= {
                f"{block}.attn.{n}.{component}": values.t()
                for n, values in zip("qkv", qkv, strict=True)
            }
            state[f"{block}.attn.o.{component}"] = theirs[f"{them}.attn.c_proj.{component}"].t()
            state[f"{block}.ffn.up.{component}"] = theirs[f"{them}.mlp.c_fc.{component}"].t()
            state[f"{block}.ffn.down.{component}"] = theirs[f"{them}.mlp.c_proj.{component}"].t()
            state[f"{block}.placement.attn.norm.0.{component}"] = theirs[f"{them}.ln_1.{component}"]
            state[f"{block}.placement.ffn.norm.0.{component}"] = theirs[f"{them}.ln_2.{component}"]
    return state


def llama():
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=DIM,
        intermediate_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=3,
        head_dim=10,
        max_position_embeddings=POSITIONS,
        rms_norm_eps=1e-5,
        rope_theta=500.0,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    config.rope_parameters = {"rope_type": "default", "rope_theta": 500.0}
    theirs = randomised(transformers.LlamaForCausalLM(config))
    ours = tiny_config(
        attn={"name": "multi_head", "heads": HEADS, "kv_heads": 3, "head_dim": 10},
        position={"name": "rotary", "theta": 500.0},
        norm={"name": "rms", "eps": 1e-5},
        ffn={"name": "glu", "width": WIDTH},
        tie_embeddings=False,
        **SMALL,
    )
    return theirs, loaded(ours, llama_state(theirs.state_dict()))


@pytest.fixture(params=[gpt2, llama], ids=["gpt2", "llama"])
def pair(request):
    return request.param()


@pytest.fixture
def ids():
    return torch.randint(VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_logits_are_equal(pair, ids):
    theirs, ours = pair
    close(ours(ids), theirs(ids).logits)


@torch.no_grad()
def test_logits_of_a_batch_that_is_padded_on_the_left_are_equal_at_real_tokens(pair, ids):
    theirs, ours = pair
    real = torch.arange(LENGTH) >= torch.tensor([0, 4, 9])[:, None]
    position = (real.long().cumsum(-1) - 1).clamp(min=0)
    expected = theirs(ids, attention_mask=real.long(), position_ids=position).logits
    close(ours(ids, real=real)[real], expected[real])


@torch.no_grad()
def test_greedy_continuations_are_equal(pair, ids):
    theirs, ours = pair
    real = torch.ones_like(ids)
    expected = theirs.generate(
        ids, attention_mask=real, max_new_tokens=8, do_sample=False, eos_token_id=[], pad_token_id=0
    )
    assert torch.equal(ours.generate(ids, max_new_tokens=8, temperature=0.0), expected)


def test_gradients_are_equal(pair, ids):
    close_gradients(pair, ids)
