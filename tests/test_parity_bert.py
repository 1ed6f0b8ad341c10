"""The same weights give the same logits as BERT with its masked-token head."""

import pytest
import torch

from tests.peers import (
    DIM,
    HEADS,
    LAYERS,
    POSITIONS,
    WIDTH,
    close,
    loaded,
    randomised,
    transformers,
)
from tests.two_stack_peers import IDS, NAMES, REAL, like_transformers, renamed
from xformer_kit.laws.tiny_composition import LENGTH, VOCAB


@pytest.fixture(scope="module")
def bert():
    config = transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=WIDTH,
        max_position_embeddings=POSITIONS,
        type_vocab_size=2,
        attn_implementation="eager",
    )
    theirs = randomised(transformers.BertForMaskedLM(config)).double()
    state, embeddings, head = theirs.state_dict(), "bert.embeddings", "cls.predictions"
    ours = {
        "embed.weight": state[f"{embeddings}.word_embeddings.weight"],
        "token_type.weight": state[f"{embeddings}.token_type_embeddings.weight"],
        "encoder.position.base.weight": state[f"{embeddings}.position_embeddings.weight"],
        "head.bias": state[f"{head}.bias"],
    }
    ours |= renamed("encoder", embeddings, {"embed_norm": "LayerNorm"}, state)
    ours |= renamed(
        "head.transform", f"{head}.transform", {"dense": "dense", "norm": "LayerNorm"}, state
    )
    for i in range(LAYERS):
        block, them = f"encoder.{i}", f"bert.encoder.layer.{i}"
        ours |= renamed(f"{block}.attn", them, NAMES["bert"], state)
        ours |= renamed(
            block, them, {"ffn.up": "intermediate.dense", "ffn.down": "output.dense"}, state
        )
        norms = {
            "placement.attn.norm": "attention.output.LayerNorm",
            "placement.ffn.norm": "output.LayerNorm",
        }
        ours |= renamed(block, them, norms, state)
    config = like_transformers("encoder", token_types=2, head_transform=True, head_bias=True)
    return theirs, loaded(config, ours)


@torch.no_grad()
def test_bert_with_its_masked_token_head(bert):
    theirs, ours = bert
    segment = (torch.arange(LENGTH) > 5).long().expand(3, -1)
    expected = theirs(IDS, attention_mask=REAL.long(), token_type_ids=segment).logits
    close(ours(IDS, real=REAL, segment=segment)[REAL], expected[REAL])
    close(ours(IDS), theirs(IDS).logits)


def test_berts_gradients_of_a_masked_token(bert):
    theirs, ours = bert
    for model, logits in ((theirs, theirs(IDS).logits), (ours, ours(IDS))):
        model.zero_grad()
        torch.nn.functional.cross_entropy(logits[:, 4], IDS[:, 7]).backward()
    close(ours.embed.weight.grad, theirs.get_input_embeddings().weight.grad)
