"""Learned tokens in front of every text."""

import pytest
import torch
from torch.testing import assert_close

from tests.laws_kept import every_law_test
from tests.refusals import refusals
from xformer_kit import ConfigError
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import BATCH, LENGTH, VOCAB, Composition
from xformer_kit.tensors.tokens import Tokens

MEMORY = {"extra": {"memory_tokens": {"count": 3}}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mask": "sliding_window", "position": "alibi"},
        {"mask": "full", "position": "rotary"},
        {"attn": "gated_delta", "position": "none"},
    ],
    ids=["causal", "window", "full", "recurrent"],
)
def test_they_are_tokens_at_the_position_of_the_first(changes):
    """The output, and the gradient of the memory, are those of a model without the extra that reads
    three more ids, whose embeddings are the memory.
    """
    case = Composition(tiny_config(**MEMORY, **changes), "")
    model, plain = case.model(), Composition(tiny_config(**changes), "").model()
    memory = model.decoder.extra["memory_tokens"].weight
    plain.load_state_dict(model.state_dict(), strict=False)
    ids = case.ids % (VOCAB - 3)
    with torch.no_grad():
        plain.embed.weight[VOCAB - 3 : VOCAB] = memory
    front = torch.arange(VOCAB - 3, VOCAB).expand(BATCH, -1)
    position = torch.cat([torch.zeros(3, dtype=torch.long), torch.arange(LENGTH)])[None]
    tokens = Tokens(ids=torch.cat([front, ids], 1), position=position)
    expected, got = plain.hidden(tokens)[0][:, 3:], model.hidden(Tokens(ids=ids))[0]
    assert_close(got, expected)
    for hidden in (got, expected):
        hidden.square().sum().backward()
    assert_close(memory.grad, plain.embed.weight.grad[VOCAB - 3 : VOCAB])


@torch.no_grad()
def test_each_document_of_a_row_has_its_own():
    """Also if a window is shorter than the text before a document, and rows have as many documents
    as they like.
    """
    case = Composition(tiny_config(**MEMORY, mask="sliding_window"), "")
    model, text = case.model(), case.ids[:2, :9]
    document = torch.tensor([[0] * 4 + [1] * 5, [0] * 9])
    found = model.hidden(Tokens(ids=text, document=document))[0]
    for row, part in ((0, slice(0, 4)), (0, slice(4, 9)), (1, slice(0, 9))):
        expected = model.hidden(Tokens(ids=text[row : row + 1, part]))[0]
        assert_close(found[row : row + 1, part], expected)
    with pytest.raises(ConfigError, match="generation has one document in a row"):
        model.hidden(Tokens(ids=text, document=document), model.cache(2, LENGTH))


@torch.no_grad()
def test_a_cache_that_is_emptied_begins_again_with_them():
    case = Composition(tiny_config(**MEMORY), "")
    model = case.model()
    cache, expected = case.empty_cache(model), case.logits(model)
    case.logits(model, case.ids.flip(-1), cache=cache)
    cache.rewind(LENGTH)
    assert cache.length == 0
    assert_close(case.logits(model, cache=cache), expected)


test_every_law_is_kept = every_law_test(
    {
        "window": MEMORY | {"mask": "sliding_window", "position": "learned", "placement": "post"},
        "encoder-decoder": MEMORY
        | {"model": "encoder_decoder", "mask": "prefix", "position": "t5"},
        "encoder": MEMORY | {"model": "encoder", "ffn": "moe"},
        "linformer": MEMORY | {"attn": "linformer", "mask": "full", "position": "none"},
        "loops": MEMORY | {"attn": "latent", "placement": "lime", "loops": 2, "position": "cope"},
        "extras": {
            "extra": {
                "canon": {"at": ["A", "C"]},
                "memory_tokens": {},
                "token_shift": {},
                "future_tokens": {"count": 2},
            }
        },
    }
)


test_refused = refusals(
    {
        "extra.memory_tokens.count=0": (
            "extra.memory_tokens.count: must be at least 1 token; got 0."
        ),
        "extra.memory_tokens={} extra.deep_embed={}": (
            "extra.deep_embed: reads the ids of tokens, and those that extra 'memory_tokens' puts"
            " in front of a text have none. Leave one of them out."
        ),
    }
)
