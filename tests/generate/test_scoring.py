"""The log-probability of a text is the sum over its tokens, padded or not, of one stack or two."""

import pytest
import torch

from xformer_kit import ConfigError
from xformer_kit.generate import generate, score
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB
from xformer_kit.model.build import build_model

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


@torch.no_grad()
def test_each_token_is_scored_given_the_earlier_ones(small):
    model = small()
    found = score(model, IDS)
    assert found.shape == (2, 3)
    for row in range(2):
        for t in range(1, 4):
            nats = model(IDS[row : row + 1, :t])[0, -1].log_softmax(-1)[IDS[row, t]]
            torch.testing.assert_close(found[row, t - 1], nats)


@torch.no_grad()
def test_probabilities_of_all_texts_of_one_length_sum_to_one(small):
    texts = torch.cartesian_prod(torch.arange(11), torch.arange(11))
    torch.testing.assert_close(score(small(), texts, start=3).sum(1).exp().sum(), torch.tensor(1.0))


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_adds_nothing(small, side):
    model, bare = small(), score(small(), IDS)
    pad = (2, 0) if side == "left" else (0, 2)
    ids = torch.nn.functional.pad(IDS, pad)
    real = torch.nn.functional.pad(torch.ones_like(IDS, dtype=torch.bool), pad)
    found = score(model, ids, real=real)
    torch.testing.assert_close(found[:, 2:] if side == "left" else found[:, :3], bare)
    torch.testing.assert_close(found.sum(), bare.sum())


@torch.no_grad()
def test_padding_between_tokens_adds_nothing(small):
    model = small("decoder", 11, 15, 2.0, "mask=sliding_window", "mask.window=2")
    real = torch.tensor([[1, 0, 1, 0, 0, 1, 1], [0, 1, 1, 1, 0, 1, 0]]).bool()
    ids = torch.full(real.shape, 9).masked_scatter(real, IDS)
    found = score(model, ids, real=real)
    for row, there, bare in zip(found, real, score(model, IDS), strict=True):
        torch.testing.assert_close(row[there[1:]][-3:], bare)
        assert (row[~there[1:]] == 0).all()


@torch.no_grad()
def test_a_target_is_scored_given_its_source(small):
    model = small("encoder_decoder")
    source, real = torch.tensor([[1, 2, 0], [4, 5, 6]]), torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    found = score(model, IDS, source=source, source_real=real, start=9)
    unpadded = model(source=source[:1, :2], target=torch.tensor([[9, 1, 2, 3]])).log_softmax(-1)
    torch.testing.assert_close(found[0], unpadded[0].gather(-1, IDS[0, :, None])[:, 0])


@torch.no_grad()
def test_a_prefix_is_not_scored(small):
    model = small(
        "decoder", 11, 15, 2.0, "model.layers=2", "mask=prefix", "task=prefix_language_modeling"
    )
    prefix = torch.tensor([[1, 1, 0, 0]]).bool().expand(2, -1)
    found = score(model, IDS, prefix=prefix)
    assert (found[:, 0] == 0).all() and (found[:, 1:] < 0).all()
    assert not torch.allclose(found[:, 1:], score(model, IDS)[:, 1:])


def test_scores_in_chunks_are_the_same(small, monkeypatch):
    whole = score(small(), IDS)
    monkeypatch.setattr("xformer_kit.generate.scoring.CHUNK", 1)
    torch.testing.assert_close(score(small(), IDS), whole)


def test_texts_that_cannot_be_scored_are_reported(small):
    left = {"real": torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]]).bool(), "start": 9}
    cases = [
        (
            IDS[:, :1],
            {},
            (
                "ids: must hold at least two tokens, of which the second is scored; got 1. Or give"
                " start."
            ),
        ),
        (
            IDS,
            left,
            (
                "real: must be True at the beginning of every row with start. Pad texts on the"
                " right."
            ),
        ),
        (IDS + 9, {}, "prompt: must be ids of the vocabulary, 0 to 10; got 17."),
    ]
    for ids, options, sentence in cases:
        with pytest.raises(ConfigError) as error:
            score(small(), ids, **options)
        assert str(error.value) == sentence


MEAN = (
    "placement 'mv_split' breaks the law of causality (the mean over a whole text depends on later"
    " tokens)"
)
INVERTED = (
    "attn 'multi_head' breaks the law of causality (score 'inverted': queries compete for keys,"
    " those of later tokens too)"
)


@pytest.mark.parametrize("call", [score, generate])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"placement": "mv_split"}, MEAN),
        ({"attn": {"name": "multi_head", "score": {"name": "inverted"}}}, INVERTED),
    ],
)
def test_a_component_that_depends_on_later_tokens_predicts_no_text(options, reason, call):
    with pytest.raises(ConfigError) as error:
        call(build_model(tiny_config(**options), VOCAB), IDS)
    rule = "so the model does not predict the next token. Choose another component."
    assert str(error.value) == f"model: {reason}, {rule}"
