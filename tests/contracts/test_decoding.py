"""Every contract decodes with a cache as without one."""

import pytest
import torch
from compositions import ALL, LENGTH, PROOFS, VOCAB, batch, model_of

from xformer_kit import ConfigError
from xformer_kit.tensors.tokens import Tokens

SPLITS = [(LENGTH,), (1,) * LENGTH, (8, 1, 1, 9), (3, 11, 5), (18, 1)]  # tokens of each call
TIGHT = {torch.float64: 1e-12, torch.float32: 2e-5}


def cached(model, tokens: Tokens, split, past=None):
    """Logits of tokens that arrive in chunks, and the cache after them."""
    past, start, logits = past or model.cache(len(tokens.ids), LENGTH), 0, []
    for length in split:
        chunk = tokens.map(lambda field, at=slice(start, start + length): field[:, at])
        logits.append(model(chunk.ids, real=chunk.real, cache=past))
        start += length
    return torch.cat(logits, 1), past


@torch.no_grad()
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", TIGHT, ids=str)
def test_cached_equals_uncached_at_every_split(name, dtype):
    model, tokens = model_of(name, dtype=dtype).eval(), batch()
    whole = model(tokens.ids)
    for split in SPLITS:
        logits, _ = cached(model, tokens, split)
        torch.testing.assert_close(
            logits, whole, rtol=0, atol=TIGHT[dtype], msg=f"{split}: {{}}".format
        )


@torch.no_grad()
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("split", [(LENGTH,), (9,) + (1,) * 10], ids=["at once", "step by step"])
def test_a_padded_prompt_goes_on_like_its_unpadded_rows(name, split):
    model, tokens = model_of(name).eval(), batch(padded=True)
    past = model.cache(len(tokens.ids), LENGTH)
    logits = [model(tokens.ids[:, : split[0]], real=tokens.real[:, : split[0]], cache=past)]
    for at in range(split[0], LENGTH):  # what follows the prompt carries no padding
        logits.append(model(tokens.ids[:, at : at + 1], cache=past))
    for row, ids, kept in zip(torch.cat(logits, 1), tokens.ids, tokens.real, strict=True):
        torch.testing.assert_close(row[kept], model(ids[kept][None])[0], rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("name", ALL)
def test_selected_rows_go_on_as_if_they_had_come_alone(name):
    model, tokens = model_of(name).eval(), batch(padded=True)
    rows = torch.tensor([2, 0, 0, 3, 1])
    _, past = cached(model, tokens.map(lambda field: field[:, :12]), (12,))
    past.select(rows)
    chosen = tokens.map(lambda field: field[rows])
    rest = chosen.map(lambda field: field[:, 12:])
    whole = model(chosen.ids, real=chosen.real)[:, 12:]
    torch.testing.assert_close(cached(model, rest, (1, 6), past)[0], whole, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in ALL if name != "linear"])
def test_a_rewound_cache_goes_on_as_if_nothing_had_been(name):
    model, tokens = model_of(name).eval(), batch()
    _, past = cached(model, tokens, (10,))
    model(torch.randint(VOCAB, (4, 5)), cache=past)
    past.rewind(5)
    assert past.length == 10
    rest = tokens.map(lambda field: field[:, 10:])
    torch.testing.assert_close(
        cached(model, rest, (2, 7), past)[0], model(tokens.ids)[:, 10:], rtol=0, atol=1e-12
    )


@torch.no_grad()
def test_no_cache_is_rewound_beyond_its_beginning():
    model = model_of("plain")
    _, past = cached(model, batch(), (10,))
    with pytest.raises(
        ConfigError, match=r"^rewind: the cache holds 10 tokens; got 11\. Rewind by at most 10\.$"
    ):
        past.rewind(11)
    assert past.length == 10


@torch.no_grad()
def test_a_refused_rewind_leaves_every_layer_as_it_was():
    pattern = "model.decoder.pattern=[base,summed,base]"
    model = model_of(
        "plain", "position=learned", pattern, "model.decoder.variants.summed.attn.name=test_linear"
    ).eval()
    tokens = batch()
    _, past = cached(model, tokens, (10,))
    with pytest.raises(
        ConfigError, match=r"^attn 'test_linear': keeps one sum .* got 2 tokens\. Begin again"
    ):
        past.rewind(2)
    past.rewind(0)
    rest = tokens.map(lambda field: field[:, 10:])
    torch.testing.assert_close(
        cached(model, rest, (9,), past)[0], model(tokens.ids)[:, 10:], rtol=0, atol=1e-12
    )


@torch.no_grad()
def test_what_each_cache_holds():
    """Per layer and row: keys and values are 2 x 24 numbers for each token, a latent 8 + 4; sums 4
    x 6 x 7 in all.
    """
    size = {}
    for name in ("plain", "latent", "linear"):
        size[name] = [
            model_of(name).cache(4, length).bytes // (3 * 4 * 8) for length in (LENGTH, 10 * LENGTH)
        ]
    assert size["plain"] == [48 * LENGTH, 480 * LENGTH]
    assert size["latent"] == [12 * LENGTH, 120 * LENGTH]
    assert size["linear"] == [168, 168]


@torch.no_grad()
def test_a_recurrent_cache_does_not_grow_with_what_it_has_seen():
    model = model_of("linear").eval()
    past = model.cache(4, LENGTH)
    before = past.bytes
    cached(model, batch(), (10, 9), past)
    assert past.bytes == before


@pytest.mark.parametrize("name", PROOFS)
def test_greedy_generation_equals_taking_the_likeliest_token_again_and_again(name):
    model, ids = model_of(name).eval(), batch(3, 5).ids
    made = model.generate(ids, max_new_tokens=8, temperature=0.0)
    for _ in range(8):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    assert made.tolist() == ids.tolist()
