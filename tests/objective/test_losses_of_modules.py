"""Losses of modules, such as the balance of experts, are means over the step: gradients of its
micro-batches, and of its ranks, add up to those of the whole batch.
"""

import pytest
import torch
from torch import Tensor

from xformer_kit.data.batch import map_tensors
from xformer_kit.laws.tiny_composition import tiny_config
from xformer_kit.model.build import build_model
from xformer_kit.objective import OBJECTIVES
from xformer_kit.tensors.tokens import Tokens

VOCAB, ROWS, LENGTH = 19, 8, 11
FULL = {"mask": "full"}
SOFTMAX = {"name": "softmax", "balance": 1.0, "z_loss": 0.1}
ROUTERS = {
    "softmax": SOFTMAX,
    "sigmoid": {**SOFTMAX, "name": "sigmoid", "correction": 0.1},
    "capacity": {**SOFTMAX, "capacity": 0.7},
    "round_robin": {"name": "round_robin"},
}


def experts(router) -> dict:
    return {"name": "moe", "experts": 4, "top_k": 2, "router": router}


def tokens(length=LENGTH) -> Tokens:
    """Rows of different lengths, the first the longest."""
    lengths = torch.linspace(length, 3, ROWS).long()[:, None]
    return Tokens(torch.randint(VOCAB, (ROWS, length)), real=torch.arange(length) < lengths)


def masked() -> dict:
    read = tokens()
    return {"tokens": read, "labels": torch.where(read.real & (read.ids % 3 == 0), read.ids, -1)}


def pairs() -> dict:
    return {"source": tokens(), "target": tokens(7)}


def text() -> dict:
    return {"tokens": tokens()}


def labelled() -> dict:
    return {"tokens": tokens(), "labels": torch.randint(2, (ROWS, 1))}


def made(task, stacks, ffn, more):
    """An objective, and a model with random weights, in float64."""
    options = {"classes": [0, 1]} if task == "classification" else {}
    objective = OBJECTIVES.create({"name": task, **options})
    objective.stacks = tuple(stacks.split("_"))
    objective.tokenizer = type("Classes", (), {"special": lambda self, name: VOCAB - 2})()
    torch.manual_seed(0)
    model = build_model(tiny_config(stacks, ffn=ffn, **more), VOCAB).double().train()
    model.before_steps()
    return objective, model


def with_totals(objective, model, ranks: list) -> list:
    """The batches of all ranks with the totals of the step."""
    given: list[Tensor] = []

    def collect(counts: Tensor) -> Tensor:
        given.append(counts)
        return counts

    for batch in ranks:
        objective.add_step_totals(model, batch, collect)
    calls = len(given) // len(ranks)
    sums = [sum(given[i::calls]) for i in range(calls)]
    batches = []
    for batch in ranks:
        left = iter(sums)
        batches.append(objective.add_step_totals(model, batch, lambda _: next(left)))  # noqa: B023
    return batches


def split(batch, parts: int) -> list:
    rows = ROWS // parts
    return [map_tensors(batch, lambda x, k=k: x[k * rows : (k + 1) * rows]) for k in range(parts)]


def gradients(objective, model, batches):
    """The gradients of the mean loss of a step, by name, and its report."""
    model.zero_grad()
    report, tokens = {}, 0
    for batch in batches:
        nats, count, said = objective.loss(model, batch)
        (nats + said.pop("loss", 0) * count).backward()
        tokens += count
        report |= {name: report.get(name, 0) + value.detach() for name, value in said.items()}
    found = {n: p.grad / tokens for n, p in model.named_parameters() if p.grad is not None}
    return found, report


CASES = [
    *(("language_modeling", "decoder", text, r, {}) for r in ROUTERS),
    ("language_modeling", "decoder", text, "softmax", {"extra": {"future_tokens": {"count": 2}}}),
    ("masked_language_modeling", "encoder", masked, "softmax", FULL),
    ("masked_language_modeling", "encoder", masked, "expert_choice", FULL),
    ("classification", "encoder", labelled, "softmax", FULL),
    ("seq2seq", "encoder_decoder", pairs, "softmax", {}),
]


@pytest.mark.parametrize(("task", "stacks", "batch", "router", "more"), CASES)
def test_micro_batches_and_ranks_have_the_gradients_of_the_batch(task, stacks, batch, router, more):
    node = ROUTERS.get(router, {"name": router, "z_loss": 0.1})
    objective, model = made(task, stacks, experts(node), more)
    for _ in range(2):
        step = batch()
        (whole,) = with_totals(objective, model, [step])
        expected, report = gradients(objective, model, [whole])
        ranks = with_totals(objective, model, split(step, 2))
        for parts in (split(whole, 2), split(whole, 4), ranks):
            found, said = gradients(objective, model, parts)
            for name, value in expected.items():
                torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-13, msg=name)
            assert all(
                torch.equal(said[name], load) for name, load in report.items() if "load" in name
            )
        model.after_step(report)


def test_layers_that_choose_tokens_keep_the_law():
    more = {"extra": {"mixture_of_depths": {"capacity": 0.5, "every": 1, "loss": 1.0}}}
    objective, model = made("language_modeling", "decoder", "mlp", {**more, "position": "none"})
    (whole,) = with_totals(objective, model, [text()])
    expected, _ = gradients(objective, model, [whole])
    found, _ = gradients(objective, model, split(whole, 4))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-13, msg=name)


def test_a_loss_of_modules_is_the_mean_over_the_tokens_of_the_step():
    """Of one micro-batch it is as if nothing were scaled."""
    objective, model = made("masked_language_modeling", "encoder", experts(SOFTMAX), FULL)
    (step,) = with_totals(objective, model, [masked()])
    plain = {name: step[name] for name in ("tokens", "labels")}
    loss = objective.loss(model, plain)[2]["loss"]
    torch.testing.assert_close(objective.loss(model, step)[2]["loss"], loss)
