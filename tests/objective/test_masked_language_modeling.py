"""Masked tokens: how many, which, as what, and the loss of them."""

import numpy as np
import pytest
import torch
from objective_models import WORDS, alike, generator, ids, made
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.attention.base import AttentionTraits
from xformer_kit.data.batch import collate
from xformer_kit.data.examples import Examples
from xformer_kit.mask.base import MaskTraits
from xformer_kit.objective import OBJECTIVES
from xformer_kit.registry import Context

MASK = WORDS
TASK = "masked_language_modeling"


def text(n, seed=0):
    return np.random.default_rng(seed).integers(WORDS, size=n)


def objective(**options):
    return made(TASK, "encoder", through="full", **options)[0]


def test_a_fixed_draw_by_eye():
    made_of = objective(rate=0.4).example({"tokens": ids(*range(11))}, generator(4))
    tokens, labels = made_of["tokens"], made_of["labels"]
    assert len(tokens) == len(labels) == 10  # the last of a window is the first of the next
    chosen = labels >= 0
    assert labels[chosen].tolist() == np.arange(10)[chosen].tolist()
    assert tokens[~chosen].tolist() == np.arange(10)[~chosen].tolist()
    assert 0 < chosen.sum() < 10


@pytest.mark.parametrize(
    ("rate", "mask", "random"),
    [(0.15, 0.8, 0.1), (0.4, 0.5, 0.5), (0.3, 1.0, 0.0), (0.2, 0.0, 0.0)],
)
def test_the_shares_are_those_of_the_options(rate, mask, random):
    n = 200_000
    tokens = text(n + 1)
    example = objective(rate=rate, mask=mask, random=random).example(
        {"tokens": tokens}, generator(1)
    )
    labels, read, true = example["labels"], example["tokens"], tokens[:-1]
    chosen = labels >= 0
    assert alike([chosen.sum(), n - chosen.sum()], [n * rate, n * (1 - rate)]) > 1e-3
    masked, same = (read == MASK) & chosen, (read == true) & chosen
    seen = [masked.sum(), (chosen & ~masked & ~same).sum(), same.sum()]
    share = [
        mask,
        random * (WORDS - 1) / WORDS,
        1 - mask - random + random / WORDS,
    ]  # some random tokens are the true one
    assert all((count == 0) == (part < 1e-9) for count, part in zip(seen, share, strict=True))
    there = [
        (count, part * chosen.sum()) for count, part in zip(seen, share, strict=True) if part > 1e-9
    ]
    if len(there) > 1:
        assert alike(*zip(*there, strict=True)) > 1e-3
    if random:
        others = read[chosen & ~masked & (read != true)]
        assert alike(np.bincount(others, minlength=WORDS)) > 1e-3


def test_places_are_chosen_alike():
    made_of, counts = objective(), np.zeros(30)
    for seed in range(3000):
        counts += made_of.example({"tokens": text(31)}, generator(seed))["labels"] >= 0
    assert alike(counts) > 1e-3


def test_at_least_one_token_is_asked_for_and_never_padding():
    made_of = objective(rate=0.01)
    real = np.array([True, True, True, False, False, False])
    for seed in range(50):
        example = made_of.example(
            {"tokens": ids(4, 5, 6, 0, 0, 0), "tokens.real": real}, generator(seed)
        )
        assert example["tokens.real"].tolist() == [True, True, True, False, False]
        assert (example["labels"][:3] >= 0).sum() == 1  # with this rate, rarely more
        assert (example["labels"][3:] == -1).all()


def test_an_example_is_a_function_of_seed_epoch_and_index():
    class Texts:
        def __len__(self):
            return 5

        def __getitem__(self, i):
            return {"tokens": text(65, i)}

    def labels(seed, key):
        return Examples(Texts(), objective().example, seed)[key]["labels"].tolist()

    assert labels(1, 3) == labels(1, 3)
    others = [labels(1, 3 + 5), labels(2, 3), labels(1, 4)]  # another epoch, seed, index
    places = [
        [i for i, label in enumerate(found) if label >= 0] for found in (labels(1, 3), *others)
    ]
    assert len({tuple(place) for place in places}) == 4


def test_whole_words_are_chosen_together():
    made_of = objective(rate=0.3, whole_word=True)
    made_of.tokenizer.word_starts = lambda tokens: np.arange(len(tokens)) % 3 == 0
    for seed in range(20):
        chosen = made_of.example({"tokens": text(31)}, generator(seed))["labels"] >= 0
        assert chosen.any()
        assert (chosen.reshape(10, 3).all(1) == chosen.reshape(10, 3).any(1)).all()
    rates = [
        (made_of.example({"tokens": text(301)}, generator(s))["labels"] >= 0).sum() / 3
        for s in range(200)
    ]
    assert alike([sum(rates), 20_000 - sum(rates)], [6000, 14_000]) > 1e-3


TEXTS = [text(13, 1), text(8, 2), text(3, 3)]


@torch.no_grad()
def test_the_loss_is_the_surprise_of_the_chosen_tokens_from_the_logits():
    made_of, model = made(TASK, "encoder", through="full")
    examples = [made_of.example({"tokens": t}, generator(i)) for i, t in enumerate(TEXTS)]
    expected, asked = 0.0, 0
    for example in examples:  # by hand, one text at a time, without padding
        logits = model(torch.tensor(example["tokens"])[None])[0].log_softmax(-1)
        for at, label in enumerate(example["labels"]):
            if label >= 0:
                expected, asked = expected - logits[at, label], asked + 1
    nats, count, _ = made_of.loss(model, collate(examples))
    assert_close(nats, expected)
    assert count == asked


def test_micro_batches_of_any_padding_add_up_with_their_gradients():
    made_of, model = made(TASK, "encoder", through="full", label_smoothing=0.1, z_loss=0.01)
    model.train()
    examples = [made_of.example({"tokens": t}, generator(i)) for i, t in enumerate(TEXTS)]
    whole, parts = (
        made_of.loss(model, collate(examples)),
        [made_of.loss(model, collate([e])) for e in examples],
    )
    assert_close(sum(part[0] for part in parts), whole[0])
    assert sum(part[1] for part in parts) == whole[1]
    gradients = [
        torch.autograd.grad(loss, list(model.parameters()))
        for loss in (whole[0], sum(p[0] for p in parts))
    ]
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


def test_a_batch_in_which_nothing_is_asked_costs_nothing():
    made_of, model = made(TASK, "encoder", through="full")
    batch = collate([{"tokens": ids(1, 2, 3), "labels": ids(-1, -1, -1)}])
    nats, count, _ = made_of.loss(model, batch)
    assert (nats, count) == (0, 0)
    nats.backward()


def test_blank_is_a_batch_of_the_largest_size():
    made_of, model = made(TASK, "encoder", through="full")
    blank = made_of.blank(3, 10)
    assert made_of.loss(model, blank)[1] == 3 * 3
    assert made_of.size(blank) == 30


def test_ranges_are_answered_in_a_sentence():
    def faults(**options):
        return messages(OBJECTIVES.faults({"name": TASK, **options}, "task", Context()))

    assert faults(rate=0) == ["task.rate: must be above 0 and at most 1; got 0. Try 0.15."]
    assert faults(mask=0.8, random=0.3) == [
        "task.mask: must be at most 1 together with random; got 0.8 and 0.3. Try 0.8 and 0.1."
    ]
    assert faults(random=-0.1) == ["task.random: must be at least 0; got -0.1."]
    prefix = Context(
        names={"mask": "prefix"}, attn=AttentionTraits(), mask=MaskTraits(sees_prefix=True)
    )
    assert messages(OBJECTIVES.cannot(TASK, prefix)) == [
        "mask 'prefix' is for a prefix, which masked_language_modeling does not have. Use"
        " mask=full."
    ]
