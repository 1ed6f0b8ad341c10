"""The loss of a batch, with the smallest model that there is: a bigram table."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.attention.base import AttentionTraits
from xformer_kit.mask.base import MaskTraits
from xformer_kit.model.loss import cross_entropy
from xformer_kit.objective import OBJECTIVES, Objective
from xformer_kit.registry import ConfigError, Context
from xformer_kit.tensors.tokens import Tokens

VOCAB = 11


class Bigram(nn.Module):
    """hidden states are one-hot, so the head's rows are the logits of a word's successors."""

    predictions = ()

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(
            torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0))
        )

    def hidden(self, tokens):
        return nn.functional.one_hot(tokens.ids, VOCAB).float(), {
            "seen": torch.tensor(tokens.length)
        }

    def head(self, hidden, target):
        self.asked = target.numel()
        return cross_entropy(hidden, self.table, target)


@pytest.fixture
def ids():
    return torch.randint(VOCAB, (3, 8), generator=torch.Generator().manual_seed(1))


def surprise(model, ids):
    """(b, t): nats of each token after the first, from the table."""
    return -model.table.t().log_softmax(-1)[ids[:, :-1], ids[:, 1:]]


def objective():
    return OBJECTIVES.create("language_modeling")


def test_it_sums_the_surprise_of_every_next_token(ids):
    model = Bigram()
    total, count, report = objective().loss(model, {"tokens": Tokens(ids)})
    assert_close(total, surprise(model, ids).sum())
    assert count == 3 * 7
    assert report == {"seen": torch.tensor(7)}


def test_padding_and_the_start_of_a_document_are_not_predicted(ids):
    model = Bigram()
    real = torch.arange(8) < torch.tensor([[8], [5], [1]])
    document = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]]).expand(3, -1)
    total, count, _ = objective().loss(model, {"tokens": Tokens(ids, real=real, document=document)})
    counts = real[:, 1:] & (document[:, 1:] == document[:, :-1])
    assert_close(total, surprise(model, ids)[counts].sum())
    assert (
        count == counts.sum() == 8
    )  # 7 - 2 in the first row, 4 - 1 in the second, none in the third


def test_where_few_tokens_are_asked_the_head_is_computed_for_them_alone(ids):
    model = Bigram()
    labels = torch.where(
        torch.arange(8) == torch.tensor([[3], [7], [9]]), ids, -1
    )  # one, one, none
    total, count, _ = objective().loss(model, {"tokens": Tokens(ids), "labels": labels})
    assert_close(total, surprise(model, ids)[[0, 1], [2, 6]].sum())
    assert count == model.asked == 2


def test_micro_batches_add_up(ids):
    model = Bigram()
    whole = objective().loss(model, {"tokens": Tokens(ids)})
    parts = [objective().loss(model, {"tokens": Tokens(ids[i : i + 1])}) for i in range(3)]
    assert_close(sum(p[0] for p in parts), whole[0])
    assert sum(p[1] for p in parts) == whole[1]


def composed(mask, sees_future):
    return Context(
        names={"mask": mask}, attn=AttentionTraits(), mask=MaskTraits(sees_future=sees_future)
    )


def test_a_mask_that_sees_the_future_is_refused_with_the_way_out():
    assert messages(OBJECTIVES.cannot("language_modeling", composed("causal", False))) == []
    assert messages(OBJECTIVES.cannot("language_modeling", composed("full", True))) == [
        "mask 'full' sees the future, so language_modeling would read the token that it has to"
        " predict. Use mask=causal or mask=sliding_window."
    ]


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_names_its_stack_and_builds_from_its_defaults(name):
    built = OBJECTIVES.create(OBJECTIVES.defaults(name))
    assert isinstance(built, Objective)
    assert built.needs
    assert all(set(stacks) <= {"encoder", "decoder"} for stacks in built.needs)


def test_other_names_are_answered_with_ours():
    with pytest.raises(ConfigError, match=r"^task: 'clm' is called 'language_modeling' here\.$"):
        OBJECTIVES["clm"]
