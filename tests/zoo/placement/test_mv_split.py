"""Placement mv_split: means and differences of x-transformers."""

import pytest
import torch
from placements import DIM, F, G, X, group, random_placement
from torch.testing import assert_close

from xformer_kit import compose
from xformer_kit.registry import ConfigError
from xformer_kit.tensors.tokens import UNKNOWN, Tokens
from xformer_kit.zoo.placement.mv_split import text_mean


def test_mean_and_difference_are_those_of_x_transformers():
    theirs = (
        pytest.importorskip("x_transformers.x_transformers").MVSplitResidualUpdate(DIM).double()
    )
    part = random_placement("mv_split", ["attn"])
    theirs.alpha.data, theirs.beta.data = part.split[0].alpha.data, part.split[0].beta.data
    real = torch.tensor([[True, True, True], [True, True, False]])
    for mask in (None, real):
        (got,) = part((X,), group(F, factor=0.5), Tokens(real=mask))
        expected = theirs(F(part.norm[0](X)), X, mask=mask)
        where = slice(None) if mask is None else mask
        assert_close(got[where], (X + 0.5 * (expected - X))[where])


def test_parallel_sublayers_have_factors_of_their_own():
    part = random_placement("mv_split", ["attn", "ffn"], shared=False)
    expected = X
    for norm, split, f in zip(part.norm, part.split, (F, G), strict=True):
        y = f(norm(X))
        apart, both = y - y.mean(1, keepdim=True), (y - X).mean(1, keepdim=True)
        expected = expected + 0.5 * (split.beta * apart + split.alpha * both)
    assert_close(part((X,), group(F, G, factor=0.5), UNKNOWN)[0], expected)


def test_a_mean_by_eye():
    x = torch.tensor([[1.0, 3, 10, 20, 60], [5, 7, 9, 11, 13]])[..., None]
    document = torch.tensor([[4, 4, 0, 0, 0], [1, 2, 2, 1, 1]])
    real = torch.tensor([[True, True, True, True, False], [False, True, True, True, True]])
    assert_close(text_mean(x, None, None)[..., 0], torch.tensor([[18.8], [9.0]]))
    assert_close(text_mean(x, real, None)[..., 0], torch.tensor([[8.5], [10.0]]))
    assert text_mean(x, None, document)[..., 0].tolist() == [[2, 2, 30, 30, 30], [5, 8, 8, 12, 12]]
    assert text_mean(x, real, document)[..., 0].tolist() == [[2, 2, 15, 15, 15], [0, 8, 8, 12, 12]]


def test_a_text_that_tokens_read_whole_is_not_predicted_word_by_word():
    with pytest.raises(
        ConfigError,
        match=r"^placement: 'mv_split' breaks the law of causality \(the mean over a whole text",
    ):
        compose(["placement=mv_split", "logger=none"])
    compose(["placement=mv_split", "model=encoder", "task=masked_language_modeling", "logger=none"])
