"""Small models of transformers with random weights, and ours with the same weights.

Every parameter is random, also biases and weights of norms, so that a missing one changes results.
"""

import os

import pytest
import torch
from torch import Tensor, nn

from xformer_kit.laws.tiny_composition import VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

DIM, HEADS, LAYERS, WIDTH, POSITIONS = 36, 6, 3, 52, 29
SMALL = {"dim": DIM, "layers": LAYERS, "max_len": POSITIONS, "vocab_multiple": 1}
ATTN = {"name": "multi_head", "heads": HEADS, "kv_heads": None, "head_dim": None, "bias": True}
LAYER_NORM = {"name": "layer", "eps": 1e-5}
State = dict[str, Tensor]


def randomised(model: nn.Module) -> nn.Module:
    """Sets every parameter to random values. Returns the model in evaluation mode."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5
            parameter.mul_(1.0 if parameter.ndim < 2 else 0.0).add_(
                torch.randn(parameter.shape), alpha=scale
            )
    return model.eval()


def loaded(config: dict, state: State) -> Model:
    """Returns our model in evaluation mode with these weights, in their dtype."""
    model = build_model(config, VOCAB).to(next(iter(state.values())).dtype).eval()
    model.load_state_dict(state)  # strict: every parameter of ours comes from the peer
    return model


def llama_state(theirs: State) -> State:
    """Returns the weights of a Llama of transformers by our names."""
    state = {
        "embed.weight": theirs["model.embed_tokens.weight"],
        "head.weight": theirs["lm_head.weight"],
        "decoder.norm.weight": theirs["model.norm.weight"],
    }
    for i in range(LAYERS):
        block, them = f"decoder.{i}", f"model.layers.{i}"
        state |= {
            f"{block}.attn.{n}.weight": theirs[f"{them}.self_attn.{n}_proj.weight"] for n in "qkvo"
        }
        state |= {
            f"{block}.ffn.{n}.weight": theirs[f"{them}.mlp.{n}_proj.weight"]
            for n in ("gate", "up", "down")
        }
        state[f"{block}.placement.attn.norm.0.weight"] = theirs[f"{them}.input_layernorm.weight"]
        state[f"{block}.placement.ffn.norm.0.weight"] = theirs[
            f"{them}.post_attention_layernorm.weight"
        ]
    return state


def close(ours: Tensor, theirs: Tensor) -> None:
    """Asserts that two tensors are equal up to rounding."""
    tolerance = 1e-10 if theirs.dtype == torch.float64 else 1e-5
    atol = tolerance * theirs.abs().max().item()
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=atol)


def next_token_gradient(embedding: Tensor, logits: Tensor, ids: Tensor) -> Tensor:
    """Returns the gradient of the next-token loss by the embeddings."""
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    return torch.autograd.grad(loss, embedding)[0]


def close_gradients(pair: tuple[nn.Module, Model], ids: Tensor) -> None:
    """Asserts that two decoders have equal gradients of the next-token loss."""
    theirs, ours = pair
    close(
        next_token_gradient(ours.embed.weight, ours(ids), ids),
        next_token_gradient(theirs.get_input_embeddings().weight, theirs(ids).logits, ids),
    )
