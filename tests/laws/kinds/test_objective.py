"""Each law of objectives is broken by a faulty objective."""

from dataclasses import dataclass

import pytest
import torch
from kind_laws import assert_keeps_all, broken_kind_test
from torch.nn import functional as F

from xformer_kit.laws.kinds import KIND_LAWS
from xformer_kit.objective import Objective, blank_ids
from xformer_kit.objective.language_modeling import LanguageModeling
from xformer_kit.objective.masked_language_modeling import MaskedLanguageModeling
from xformer_kit.tensors.tokens import Tokens


@dataclass(kw_only=True, eq=False)
class Reversed(Objective):
    """A good one: an encoder predicts its first token from the others."""

    needs = (("encoder",), ("decoder",))

    noise: float = 0.1  # share of the tokens that are replaced

    def example(self, example, draw):
        ids = torch.from_numpy(example["tokens"])
        replaced = torch.rand(ids.shape, generator=draw) < self.noise
        return {**example, "tokens": ids.masked_fill(replaced, 0).numpy()}

    def blank(self, rows, length, device=None):
        return {"tokens": Tokens(ids=blank_ids(rows, length, device))}

    def loss(self, model, batch):
        tokens = batch["tokens"]
        hidden, report = model.hidden(tokens)
        real = torch.ones_like(tokens.ids, dtype=torch.bool) if tokens.real is None else tokens.real
        target = tokens.ids[:, :1].expand_as(tokens.ids)[real]
        nats = F.cross_entropy(model.head(hidden[real]), target, reduction="sum")
        return nats, real.sum(), report


class Mean(Reversed):
    def loss(self, model, batch):
        nats, count, report = super().loss(model, batch)
        return nats / count, count, report


class CountsRows(Reversed):
    """Counts the tokens of the first row for every row."""

    def loss(self, model, batch):
        nats, count, report = super().loss(model, batch)
        return nats, count // len(batch["tokens"].ids), report


class MeanOfReport(Reversed):
    """Trains the mean of the batch's squared states in addition, per batch and not per token."""

    def loss(self, model, batch):
        nats, count, report = super().loss(model, batch)
        mean = model.hidden(batch["tokens"])[0].square().sum()
        return nats, count, {**report, "loss": mean / count.square()}


class OwnTokens(LanguageModeling):
    """Weights further predictions by the tokens of one rank."""

    def add_step_totals(self, model, batch, total):
        return super().add_step_totals(model, batch, lambda x: x)


class SomeRanks(LanguageModeling):
    """Calls `total` for padded rows only."""

    def add_step_totals(self, model, batch, total):
        if batch["tokens"].real[:, -1].all():
            return super().add_step_totals(model, batch, lambda x: x)
        return super().add_step_totals(model, batch, total)


class CountsPadding(Reversed):
    def loss(self, model, batch):
        tokens = batch["tokens"]
        return super().loss(model, {"tokens": tokens._replace(real=None)})


class DrawsFromTorch(Reversed):
    def example(self, example, draw):
        return super().example(example, None)


class InPlace(Reversed):
    def example(self, example, draw):
        example["tokens"][:2] = 0
        return example


class CountsExamples(Reversed):
    seen = 0

    def example(self, example, draw):
        self.seen += 1
        return {**example, "tokens": example["tokens"] % (self.seen + 50)}


ARGUMENTS = [
    ("micro-batches", Mean, "the loss of 2 micro-batches of text differs from that of the batch"),
    ("micro-batches", CountsRows, "the number of tokens of 2 micro-batches of text differs"),
    ("micro-batches", MeanOfReport, "the loss of 2 micro-batches of text differs"),
    ("ranks", OwnTokens, "the loss of 2 ranks of text differs"),
    ("ranks", SomeRanks, "`add_step_totals` calls `total` on some ranks only"),
    ("padding", CountsPadding, "of the rows of text without padding differs"),
    ("example", DrawsFromTorch, "an example is drawn from torch's global generator"),
    ("example", InPlace, "`example` changes the example of the corpus"),
    ("example", CountsExamples, "an example differs for one state of the generator"),
]

test_a_broken_objective_is_caught = broken_kind_test("task", ARGUMENTS)


def test_every_law_catches_a_broken_objective():
    assert KIND_LAWS["task"].keys() == {law for law, *_ in ARGUMENTS}


@pytest.mark.extended
@pytest.mark.parametrize("objective", [Reversed, MaskedLanguageModeling, LanguageModeling])
def test_an_objective_keeps_all(objective):
    class Copy(objective):
        pass

    assert_keeps_all("task", Copy)
