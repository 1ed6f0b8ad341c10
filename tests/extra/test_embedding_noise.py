"""Noise on the embeddings in training."""

import pytest
import torch
from refusals import refused
from torch.testing import assert_close

from xformer_kit.extra import EmbeddingNoise, ExtraInput
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.tensors.tokens import UNKNOWN, Tokens


def noise(alpha, shape, real=None):
    tokens = UNKNOWN if real is None else Tokens(real=real)
    return (
        EmbeddingNoise(alpha=alpha)
        .train()
        .embed(torch.zeros(shape, dtype=torch.float64), ExtraInput(tokens, tokens))
    )


def test_the_noise_is_that_of_transformers():
    neftune = pytest.importorskip("transformers.integrations.neftune")
    table = torch.nn.Embedding(5, 64, dtype=torch.float64)
    table.neftune_noise_alpha = 5.0
    x = table(torch.randint(5, (3, 11)))
    torch.default_generator.manual_seed(1)
    theirs = neftune.neftune_post_forward_hook(table, (), x) - x
    torch.default_generator.manual_seed(1)
    assert_close(noise(5.0, (3, 11, 64)), theirs)


def test_the_noise_is_uniform_and_as_large_as_the_real_tokens_of_the_row_allow():
    real = torch.tensor([[True] * 16, [True] * 4 + [False] * 12])
    drawn = noise(6.0, (2, 16, 1024), real)
    assert_close(
        drawn.abs().amax((1, 2)) * 32, torch.tensor([1.5, 3.0]).double(), rtol=1e-3, atol=0
    )
    assert_close(drawn[0].norm(), torch.tensor(6 / 3**0.5).double(), rtol=0.02, atol=0)
    assert abs(drawn.mean()) < 1e-3


def test_it_is_off_in_evaluation():
    case, off = (
        Composition(tiny_config(extra={"embedding_noise": {"alpha": 50.0}}), ""),
        Composition(tiny_config(), ""),
    )
    model = case.model()
    assert_close(case.hidden(model, case.ids), off.hidden(off.model(), case.ids), rtol=0, atol=0)
    model.train()
    outputs = []
    for seed in (1, 1, 2):
        torch.default_generator.manual_seed(seed)
        outputs.append(case.hidden(model, case.ids))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_a_negative_alpha_is_refused():
    (message,) = refused("extra.embedding_noise.alpha=-1")
    assert message.startswith("extra.embedding_noise.alpha: must be at least 0; got -1.")
