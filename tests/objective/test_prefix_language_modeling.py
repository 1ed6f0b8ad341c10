"""A text that goes on from a prefix: where it is split, and the loss of the rest."""

import numpy as np
import torch
from objective_models import alike, generator, ids, made
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.attention.base import AttentionTraits
from xformer_kit.data.batch import collate
from xformer_kit.mask.base import MaskTraits
from xformer_kit.objective import OBJECTIVES
from xformer_kit.registry import Context

TASK = "prefix_language_modeling"
TEXTS = [ids(3, 1, 4, 1, 5, 9, 2, 6), ids(2, 7, 1), ids(8, 2, 8, 1, 8)]


def test_the_prefix_is_seen_and_the_rest_is_asked_for():
    objective, _ = made(TASK, "decoder", through="prefix")
    for seed in range(20):
        example = objective.example({"tokens": TEXTS[0]}, generator(seed))
        split = int(example["tokens.prefix"].sum())
        assert example["tokens.prefix"].tolist() == [True] * split + [False] * (8 - split)
        assert example["labels"].tolist() == [-1] * split + TEXTS[0][split:].tolist()


def test_every_length_of_the_prefix_is_as_likely_and_none_is_all():
    objective, _ = made(TASK, "decoder", through="prefix")
    real = np.arange(10) < 8
    counts = np.zeros(11)
    for seed in range(3500):
        example = objective.example({"tokens": np.arange(10), "tokens.real": real}, generator(seed))
        counts[int(example["tokens.prefix"].sum())] += 1
        assert (example["labels"][8:] == -1).all()
    assert counts[[0, 8, 9, 10]].sum() == 0
    assert alike(counts[1:8]) > 1e-3


@torch.no_grad()
def test_the_loss_is_the_surprise_of_the_rest_from_the_logits():
    objective, model = made(TASK, "decoder", through="prefix")
    examples = [objective.example({"tokens": text}, generator(i)) for i, text in enumerate(TEXTS)]
    expected, asked = 0.0, 0
    for text, example in zip(TEXTS, examples, strict=True):
        split = int(example["tokens.prefix"].sum())
        prefix = torch.arange(len(text))[None] < split
        logits = model(torch.tensor(text)[None], prefix=prefix)[0].log_softmax(-1)
        for at in range(split, len(text)):
            expected, asked = expected - logits[at - 1, text[at]], asked + 1
    nats, count, _ = objective.loss(model, collate(examples))
    assert_close(nats, expected)
    assert count == asked


def test_blank_asks_for_every_token():
    objective, model = made(TASK, "decoder", through="prefix")
    assert (
        objective.loss(model, objective.blank(2, 7))[1]
        == objective.size(objective.blank(2, 7))
        == 14
    )


def test_masks_without_a_meaning_are_refused_with_the_way_out():
    def meeting(mask):
        return Context(
            names={"mask": mask},
            attn=AttentionTraits(),
            mask=MaskTraits(sees_future=mask == "full", sees_prefix=mask == "prefix"),
        )

    assert messages(OBJECTIVES.cannot(TASK, meeting("prefix"))) == []
    assert messages(OBJECTIVES.cannot(TASK, meeting("causal"))) == []
    assert messages(OBJECTIVES.cannot(TASK, meeting("full"))) == [
        "mask 'full' sees the future, so prefix_language_modeling would read the token that it"
        " has to predict. Use mask=prefix."
    ]
    assert messages(OBJECTIVES.cannot("language_modeling", meeting("prefix"))) == [
        "mask 'prefix' is for a prefix, which language_modeling does not have. Use mask=causal, or"
        " task=prefix_language_modeling."
    ]
