"""Where no attention sees further back than a window, what a cache holds does not grow, and nothing
else changes.
"""

import pytest
import torch
from compositions import TINY, VOCAB

from xformer_kit import ConfigError, build, compose
from xformer_kit.attention import KeyValueCache, WindowCache

LENGTH, WINDOW = 300, 9  # tokens
LOCAL = ["mask=sliding_window", f"mask.window={WINDOW}", f"data.seq_len={LENGTH}"]
MIXED = [
    *LOCAL,
    "model.decoder.pattern=[wide,base]",
    "model.decoder.variants.wide={mask:{window:21}}",
]
KINDS = {
    "rotary": LOCAL,
    "alibi": [*LOCAL, "position=alibi", "attn.kv_heads=2"],
    "learned": [*LOCAL, "position=learned"],
    "latent": [*LOCAL, "attn=test_latent"],
    "first_values": [*MIXED, "attn=test_first_values"],
    "two windows": MIXED,
}


def model_of(*overrides):
    model = build(compose([*TINY, *overrides]), vocab_size=VOCAB).double().eval()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) * p.shape[-1] ** -0.5)
    return model


def some(rows=3):
    return torch.randint(VOCAB, (rows, LENGTH), generator=torch.Generator().manual_seed(0))


def kinds(past):
    return {type(cache) for caches in past.caches for cache in caches.values()}


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "chunks",
    [(1,) * LENGTH, (200,) + (1,) * 100, (5, 130, 2, 40, 123), (LENGTH,)],
    ids=["single", "prompt", "mixed", "whole"],
)
def test_logits_are_those_of_the_whole(name, chunks):
    model, ids = model_of(*KINDS[name]), some()
    past, logits, at = model.cache(3, LENGTH), [], 0
    assert kinds(past) == {WindowCache}
    for count in chunks:
        logits.append(model(ids[:, at : at + count], cache=past))
        at += count
    torch.testing.assert_close(torch.cat(logits, 1), model(ids), rtol=0, atol=1e-12)


@torch.no_grad()
def test_padding_on_the_left_stays_padding():
    model, ids = model_of(*LOCAL), some()
    real = torch.arange(LENGTH) >= torch.tensor([0, 3, 100])[:, None]
    past = model.cache(3, LENGTH)
    logits = [model(ids[:, :105], real=real[:, :105], cache=past)]
    logits += [model(ids[:, t : t + 1], cache=past) for t in range(105, LENGTH)]
    expected = model(ids, real=real)
    torch.testing.assert_close(torch.cat(logits, 1)[real], expected[real], rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("read", [60, 150, 290])
def test_rows_are_selected_and_tokens_forgotten(read):
    model, ids, rows = model_of(*LOCAL), some(), torch.tensor([2, 0, 0, 1])
    past = model.cache(3, LENGTH)
    for t in range(read - 20):
        model(ids[:, t : t + 1], cache=past)
    model(torch.zeros(3, 20, dtype=torch.long), cache=past)
    past.rewind(20)
    past.select(rows)
    got = torch.cat([model(ids[rows, t : t + 1], cache=past) for t in range(read - 20, read)], 1)
    torch.testing.assert_close(got, model(ids[rows])[:, read - 20 : read], rtol=0, atol=1e-12)


@torch.no_grad()
def test_what_is_gone_cannot_be_gone_back_to_and_nothing_changes():
    model, ids = model_of(*LOCAL), some()
    past = model.cache(3, LENGTH)
    model(ids[:, :200], cache=past)
    with pytest.raises(
        ConfigError,
        match=r"^rewind: a cache with a window of 9 tokens can remove 32 here; got 33\.",
    ):
        past.rewind(33)
    assert past.length == 200
    torch.testing.assert_close(
        model(ids[:, 200:], cache=past), model(ids)[:, 200:], rtol=0, atol=1e-12
    )


@torch.no_grad()
def test_the_room_does_not_grow_with_the_text():
    model = model_of(*LOCAL)
    assert (
        model.cache(1, 1_000).bytes
        == model.cache(1, 100_000).bytes
        < model_of().cache(1, 1_000).bytes / 10
    )


@pytest.mark.parametrize(
    "overrides",
    [
        [f"data.seq_len={LENGTH}"],
        [
            *LOCAL,
            "model.decoder.pattern=[base,whole]",
            "model.decoder.variants.whole={mask:{name:causal}}",
        ],
        [*LOCAL, "position=test_disentangled"],
        [*LOCAL, "mask.window=200"],
    ],
    ids=["causal", "one layer sees all", "scores of the position", "no room to win"],
)
def test_all_is_kept_where_it_may_be_seen_or_is_no_more_than_a_window(overrides):
    assert kinds(model_of(*overrides).cache(1, LENGTH)) == {KeyValueCache}
