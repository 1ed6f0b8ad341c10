import pytest
import torch

from xformer_kit import build, compose


@pytest.fixture
def model():
    config = compose(["experiment=null", "model.dim=8", "model.layers=1", "attn.heads=2", "model.vocab_multiple=64"])
    return build(config, vocab_size=65)


def test_rows_that_round_the_vocabulary_up_give_no_logit_and_stand_for_no_token(model):
    assert model.embed.weight.shape == (128, 8)
    assert model(torch.tensor([[0, 64]])).shape == (1, 2, 65)
    with pytest.raises(IndexError, match="below the vocabulary's 65; got 65"):
        model(torch.tensor([[0, 65]]))
