"""Processors equal those of `transformers` on the same scores, and small cases by eye."""

import itertools
import os
from functools import partial

import pytest
import torch

from xformer_kit import ConfigError
from xformer_kit.generate import processors as ours

os.environ.setdefault("HF_HUB_OFFLINE", "1")
theirs = pytest.importorskip("transformers.generation.logits_process")

VOCAB = 13
NONE = torch.zeros(1, 0, dtype=torch.long)


def scores_of(rows=40):
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(2)) * 2


def name(process: partial) -> str:
    """Returns the function with its arguments; workers must find the same names of cases."""
    return f"{process.func.__name__} {process.keywords}"


def text_of(rows=40, length=9):
    return torch.randint(4, (rows, length), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize(
    ("mine", "reference"),
    [
        (partial(ours.top_k_filter, k=3), theirs.TopKLogitsWarper(3)),
        (partial(ours.top_k_filter, k=50), theirs.TopKLogitsWarper(50)),
        (partial(ours.top_p_filter, p=0.7), theirs.TopPLogitsWarper(0.7)),
        (partial(ours.top_p_filter, p=0.01), theirs.TopPLogitsWarper(0.01)),
        (partial(ours.min_p_filter, p=0.2), theirs.MinPLogitsWarper(0.2)),
        (partial(ours.typical_p_filter, p=0.6), theirs.TypicalLogitsWarper(0.6)),
        (partial(ours.typical_p_filter, p=0.05), theirs.TypicalLogitsWarper(0.05)),
        (
            partial(ours.penalize_repetition, penalty=1.7),
            theirs.RepetitionPenaltyLogitsProcessor(1.7),
        ),
        (
            partial(ours.penalize_repetition, penalty=0.5),
            theirs.RepetitionPenaltyLogitsProcessor(0.5),
        ),
        (partial(ours.no_repeat_ngram, n=1), theirs.NoRepeatNGramLogitsProcessor(1)),
        (partial(ours.no_repeat_ngram, n=2), theirs.NoRepeatNGramLogitsProcessor(2)),
        (partial(ours.no_repeat_ngram, n=3), theirs.NoRepeatNGramLogitsProcessor(3)),
        (partial(ours.no_repeat_ngram, n=12), theirs.NoRepeatNGramLogitsProcessor(12)),
        (
            partial(ours.min_new_tokens, count=4, end=5, prompt=6),
            theirs.MinNewTokensLengthLogitsProcessor(6, 4, 5),
        ),
        (
            partial(ours.min_new_tokens, count=3, end=5, prompt=6),
            theirs.MinNewTokensLengthLogitsProcessor(6, 3, 5),
        ),
    ],
    ids=lambda x: name(x) if isinstance(x, partial) else type(x).__name__,
)
def test_scores_are_those_of_transformers(mine, reference):
    torch.testing.assert_close(mine(scores_of(), text_of()), reference(text_of(), scores_of()))


def test_the_distribution_at_a_temperature_is_that_of_transformers():
    """Scores differ by the largest of their row, so that a low temperature gives no infinity."""
    mine, reference = partial(ours.scaled, temperature=0.6), theirs.TemperatureLogitsWarper(0.6)
    shifted = reference(NONE, scores_of() - scores_of().amax(-1, keepdim=True))
    torch.testing.assert_close(mine(scores_of(), NONE), shifted)


@pytest.mark.parametrize(
    "warper",
    [
        partial(ours.top_p_filter, p=0.6),
        partial(ours.typical_p_filter, p=0.6),
        partial(ours.min_p_filter, p=0.3),
        partial(ours.top_k_filter, k=2),
    ],
    ids=name,
)
def test_warpers_keep_excluded_tokens_excluded(warper):
    scores = scores_of().index_fill(1, torch.tensor([3, 7]), -float("inf"))
    shaped = warper(scores, NONE)
    assert not shaped.isnan().any() and (shaped[:, [3, 7]] == -float("inf")).all()
    assert shaped.isfinite().any(-1).all()


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("length", range(1, 7))
def test_a_token_is_excluded_if_and_only_if_it_would_repeat_a_sequence(n, length):
    """All texts of two tokens; the third one of the vocabulary is never excluded."""
    texts = torch.tensor([*itertools.product(range(2), repeat=length)])
    kept = partial(ours.no_repeat_ngram, n=n)(torch.zeros(len(texts), 3), texts) == 0
    for text, row in zip(texts.tolist(), kept.tolist(), strict=True):
        given = [text[at : at + n] for at in range(length - n + 1)]
        repeats = [[*text, token][-n:] in given for token in range(3)]
        assert [not each for each in repeats] == row


def test_a_row_in_which_all_tokens_would_be_excluded_is_unchanged():
    shaped = partial(ours.no_repeat_ngram, n=1)(
        torch.zeros(2, 3), torch.tensor([[0, 1, 2], [0, 0, 1]])
    )
    assert (shaped == 0).int().tolist() == [[1, 1, 1], [0, 0, 1]]


@pytest.mark.parametrize(
    "process",
    [
        partial(ours.penalize_repetition, penalty=2.0),
        partial(ours.no_repeat_ngram, n=1),
        partial(ours.no_repeat_ngram, n=2),
    ],
    ids=name,
)
def test_padding_is_not_a_token_of_the_text(process):
    padded = torch.tensor([[VOCAB, VOCAB, 1, 2, 1]])
    torch.testing.assert_close(process(scores_of(1), padded), process(scores_of(1), padded[:, 2:]))


def test_allowed_ids_must_be_in_the_vocabulary():
    for listed in ([], [VOCAB], [-1], None, 2, [2.5], [None], ["2"], torch.tensor([2.5])):
        with pytest.raises(
            ConfigError,
            match=r"^allowed: must return at least one id, and ids from 0 to 12; got .* for row 0",
        ):
            ours.keep_next(
                scores_of(1), text_of(1), lambda row, ids, listed=listed: listed, None, 0, [0]
            )
