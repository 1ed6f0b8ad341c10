"""Decoding: greedy is the argmax of the uncached model, filters keep what they say, draws follow the distribution."""

import pytest
import torch

from xformer_kit import ConfigError, build, compose
from xformer_kit.generate import choose, generate, stream

SMALL = ["model.dim=24", "model.layers=2", "attn.heads=3", "data.seq_len=32"]


@pytest.fixture(scope="module")
def model():
    model = build(compose(SMALL), vocab_size=17)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(5)  # clear gaps between the logits
    return model.eval()


def test_greedy_is_the_argmax_of_the_uncached_model(model):
    ids = torch.arange(10).view(2, 5)
    out = generate(model, ids, max_new_tokens=9, temperature=0.0)
    assert out.shape == (2, 14)
    assert out[:, :5].tolist() == ids.tolist()
    for t in range(5, 14):
        assert out[:, t].tolist() == model(out[:, :t])[:, -1].argmax(-1).tolist()


def test_a_left_padded_prompt_continues_like_the_bare_one(model):
    ids = torch.tensor([[0, 0, 3, 1, 4], [2, 7, 1, 8, 2]])
    real = torch.tensor([[False, False, True, True, True], [True] * 5])
    padded = generate(model, ids, max_new_tokens=6, temperature=0.0, real=real)
    bare = generate(model, ids[:1, 2:], max_new_tokens=6, temperature=0.0)
    assert padded[0, 5:].tolist() == bare[0, 3:].tolist()


def test_one_seed_gives_one_text_and_the_stream_is_the_text(model):
    ids = torch.tensor([[1, 2, 3]])
    a, b, c = (generate(model, ids, max_new_tokens=20, seed=s) for s in (1, 1, 2))
    assert a.tolist() == b.tolist() != c.tolist()
    assert [int(t) for t in stream(model, ids, 20, seed=1)] == a[0, 3:].tolist()


def test_draws_follow_the_distribution():
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = choose(p.log().expand(20_000, 4), source=torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=4) / 20_000
    chi2 = (20_000 * (share - p) ** 2 / p).sum().item()
    assert chi2 < 16.27  # 3 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"top_p": 1.0}, {0, 1, 2, 3}),
        ({"top_k": 9}, {0, 1, 2, 3}),
        ({"temperature": 0.0}, {0}),
    ],
)
def test_filters_keep_what_they_say(options, kept):
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(2_000, 4)
    assert set(choose(logits, source=torch.Generator().manual_seed(0), **options).tolist()) == kept


def test_dropout_is_off_meanwhile_and_on_again_behind():
    model = build(compose([*SMALL, "model.dropout=0.5"]), vocab_size=17).train()
    ids = torch.tensor([[1, 2, 3]])
    assert generate(model, ids, 8, temperature=0.0).tolist() == generate(model, ids, 8, temperature=0.0).tolist()
    assert model.training


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens: must be at least 1; got 0."),
        (
            {"max_new_tokens": 1, "temperature": -1},
            "temperature: must be at least 0; got -1. 0 takes the likeliest token.",
        ),
        ({"max_new_tokens": 1, "top_k": 0}, "top_k: must be at least 1; got 0."),
        ({"max_new_tokens": 1, "top_p": 0.0}, "top_p: must be above 0 and at most 1; got 0.0."),
    ],
)
def test_options_out_of_range_are_one_sentence(model, options, sentence):
    with pytest.raises(ConfigError) as error:
        generate(model, torch.tensor([[1]]), **options)
    assert str(error.value) == sentence


def test_more_tokens_than_a_learned_position_knows_are_refused():
    model = build(compose([*SMALL, "position=learned"]), vocab_size=17)
    generate(model, torch.tensor([[1, 2, 3]]), 29)
    with pytest.raises(ConfigError) as error:
        generate(model, torch.tensor([[1, 2, 3]]), 30)
    assert str(error.value) == (
        "max_new_tokens: the model's positions end at 32 tokens (model.max_len), the prompt has 3; got 30. Ask for at most 29."
    )
