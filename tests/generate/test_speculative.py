"""Speculative decoding does not change the distribution of texts."""

import pytest
import torch

from xformer_kit import ConfigError
from xformer_kit.generate import generate

pytestmark = pytest.mark.extended

VOCAB, DRAWS = 7, 20_000
PROMPT = torch.tensor([[1, 2, 3]])
LIMIT = {42: 76.08, 48: 84.04}  # chi-squared by degrees of freedom, p = 0.001
BIGRAM = [
    "mask=sliding_window",
    "mask.window=1",
    "position=none",
]  # a token depends only on the one before it


def chi_squared(count, p):
    expected = p.double() * count.sum(-1, keepdim=True)
    assert expected.min() > 5
    return ((count - expected) ** 2 / expected).sum().item()


@torch.no_grad()
def test_many_rows_follow_the_models_distribution(small):
    """20,000 texts of two tokens at once: all rows go on by what the slowest keeps, so that each
    step corrects some.
    """
    model, draft = small(vocab=VOCAB, scale=1.0), small(vocab=VOCAB, scale=1.0, seed=3)
    drawn = generate(model, PROMPT, 2, draft=draft, ahead=3, seed=5, num_return=DRAWS)[:, 3:]
    first = model(PROMPT)[0, -1].softmax(-1)
    second = model(torch.cat([PROMPT.expand(VOCAB, -1), torch.arange(VOCAB)[:, None]], 1))[
        :, -1
    ].softmax(-1)
    count = torch.bincount(drawn[:, 0] * VOCAB + drawn[:, 1], minlength=VOCAB**2)
    assert chi_squared(count, (first[:, None] * second).flatten()) < LIMIT[48]


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize(
    ("rows", "draws", "options"),
    [(1, 8000, {"ahead": 3}), (4, 12_000, {"ahead": 4, "temperature": 0.8, "min_p": 0.001})],
    ids=str,
)
def test_long_texts_follow_the_models_distribution(small, rows, draws, options):
    """In texts generated with a draft model, the next token has the model's conditional
    distribution given the current token.
    """
    model, draft = (
        small("decoder", VOCAB, 15, 0.5, *BIGRAM),
        small("decoder", VOCAB, 3, 0.5, *BIGRAM),
    )
    ids, count = torch.arange(rows)[:, None], torch.zeros(VOCAB, VOCAB, dtype=torch.long)
    for at in range(0, draws, 100 * rows):
        text = generate(model, ids, 100, draft=draft, seed=rows + at, **options)
        count += torch.bincount(
            (text[:, :-1] * VOCAB + text[:, 1:]).flatten(), minlength=VOCAB**2
        ).view(VOCAB, VOCAB)
    p = (model(torch.arange(VOCAB)[:, None])[:, 0] / options.get("temperature", 1.0)).softmax(-1)
    assert count.sum() == draws
    assert chi_squared(count, p) < LIMIT[42]


@torch.no_grad()
@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize(
    "more", [[], ["mask=sliding_window", "mask.window=4"], ["position=learned"]], ids=str
)
def test_greedy_with_a_draft_is_greedy(small, ahead, more):
    model, draft = small("decoder", 11, 15, 2.0, *more), small("decoder", 11, 15, 1.9, *more)
    ids = torch.tensor([[1, 2, 3, 4], [0, 0, 5, 6], [0, 7, 7, 1]])
    real = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]).bool()
    for options in (
        {},
        {"end": 3},
        {"repetition_penalty": 1.3, "no_repeat_ngram": 2},
        {"end": 3, "min_new_tokens": 9},
    ):
        given = {"real": real, "max_new_tokens": 23, "temperature": 0.0} | options
        assert (
            generate(model, ids, draft=draft, ahead=ahead, **given).tolist()
            == generate(model, ids, **given).tolist()
        )


@torch.no_grad()
def test_greedy_of_two_stacks_with_a_draft_is_greedy(small):
    model, draft = small("encoder_decoder"), small("encoder_decoder", scale=1.9)
    real = torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    given = {
        "source": torch.tensor([[1, 2, 3, 4, 5], [6, 7, 0, 0, 0], [8, 2, 1, 4, 0]]),
        "source_real": real,
        "start": 9,
        "max_new_tokens": 20,
        "temperature": 0.0,
        "end": 10,
    }
    assert generate(model, draft=draft, **given).tolist() == generate(model, **given).tolist()


def test_proposals_of_the_model_itself_are_always_accepted(small, monkeypatch):
    """So that five tokens need one step of the model, not five."""
    model, draft = small(), small()
    read = []
    hidden = model.hidden
    monkeypatch.setattr(
        model,
        "hidden",
        lambda tokens, *rest: read.append(tokens.ids.shape[1]) or hidden(tokens, *rest),
    )
    generate(model, PROMPT, 11, draft=draft, ahead=4, seed=0)
    assert read == [3, 5, 5]


@pytest.mark.parametrize(
    ("kind", "vocab", "sentence"),
    [
        (
            "decoder",
            7,
            "draft: must have the model's vocabulary and stacks; got 7, and the model has 11",
        ),
        (
            "encoder_decoder",
            11,
            (
                "draft: must have the model's vocabulary and stacks; got ('encoder', 'decoder'),"
                " and the model has ('decoder',)."
            ),
        ),
    ],
)
def test_a_draft_that_does_not_fit_is_refused(small, kind, vocab, sentence):
    with pytest.raises(ConfigError) as error:
        generate(small(), PROMPT, 4, draft=small(kind, vocab))
    assert str(error.value).startswith(sentence)
