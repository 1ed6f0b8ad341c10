"""Laws of one optimizer step, against torch's autograd and torch.nn.utils."""

import copy
import math
import random
import signal
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from tasks.callbacks.cadence import Cadence
from tasks.callbacks.guard import NonFiniteGuard, SignalStop
from tasks.module import Task
from tasks.run.exit_codes import NonFinite, SignalBox, StoppedBySignal
from tasks.run.start import start_run
from xformer_kit import compose
from xformer_kit.objective import OBJECTIVES

ONE = [
    "trainer.max_steps=1",
    "trainer.val_every=null",
    "model.dropout=0",
    "attn.dropout=0",
    "trainer.accumulate=2",
]
EXPERTS = ["ffn={name: moe, experts: 3}", "ffn.router={name: softmax, balance: 5.0}"]


class Recorded:
    """A step as it was taken: the model before it, its micro-batches, and the gradients that the
    optimizer was given.
    """

    def __init__(self, monkeypatch):
        self.batches = []
        loss, update = Task._micro_batch, Task._update

        def _micro_batch(task, batch, micro):
            if not micro:
                self.model, self.objective = copy.deepcopy(task.model), task.objective
            self.batches.append(batch)
            return loss(task, batch, micro)

        def _update(task):
            self.gradients = [p.grad.clone() for p in task.model.parameters()]
            return update(task)

        monkeypatch.setattr(Task, "_micro_batch", _micro_batch)
        monkeypatch.setattr(Task, "_update", _update)

    def reference(self) -> list[torch.nn.Parameter]:
        """The parameters, with gradients of the mean over the tokens of all micro-batches,
        auxiliary loss and all.
        """
        terms = [self.objective.loss(self.model, batch) for batch in self.batches]
        tokens = sum(float(count) for _, count, _ in terms)
        total = sum(nats + report.get("loss", 0.0) * float(count) for nats, count, report in terms)
        self.model.zero_grad()
        (total / tokens).backward()
        return list(self.model.parameters())


@pytest.fixture
def recorded(monkeypatch):
    return Recorded(monkeypatch)


@pytest.fixture
def pairs(tmp_path):
    """A file of pairs whose lengths differ, so that micro-batches have different numbers of
    tokens.
    """
    draw, file = random.Random(0), tmp_path / "pairs.tsv"
    rows = ["".join(draw.choices("abcd", k=draw.randint(1, 20))) for _ in range(40)]
    file.write_text("".join(f"{row} {i}\t{row[::-1]}\n" for i, row in enumerate(rows)))
    return file


def test_a_gradient_is_of_the_mean_over_all_tokens_with_the_auxiliary_loss_weighed_by_them(
    recorded, pairs, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = [
        "experiment=null",
        "task=seq2seq",
        "model=encoder_decoder",
        "data=tsv",
        f"data.path={pairs}",
        "model.dim=16",
        "model.layers=1",
        "attn.heads=2",
        "tokenizer=char",
        "data.seq_len=32",
        "data.batch_size=8",
        "logger=none",
        "trainer.gradient_clip_val=null",
        "trainer.accelerator=cpu",
        *ONE,
        *EXPERTS,
    ]
    assert start_run(compose(words), tmp_path / "run") == 0
    first, second = (
        float(recorded.objective.loss(recorded.model, batch)[1]) for batch in recorded.batches
    )
    assert abs(first - second) > 5  # else any weighing would do
    for found, wanted in zip(recorded.gradients, recorded.reference(), strict=True):
        torch.testing.assert_close(found, wanted.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "share", [0.5, 2.0]
)  # of the norm that the gradient has: below it is clipped, above it stays
@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_gradients_are_clipped_as_torch_clips_them(recorded, begin, algorithm, share):
    begin("plain", *ONE, "trainer.gradient_clip_val=null")
    size = {
        "norm": lambda g: torch.cat([x.flatten() for x in g]).norm(),
        "value": lambda g: max(x.abs().max() for x in g),
    }
    limit = share * float(size[algorithm](recorded.gradients))
    recorded.batches.clear()
    begin(
        "clipped",
        *ONE,
        f"trainer.gradient_clip_val={limit}",
        f"trainer.gradient_clip_algorithm={algorithm}",
    )
    parameters = recorded.reference()
    {"norm": clip_grad_norm_, "value": clip_grad_value_}[algorithm](parameters, limit)
    for found, wanted in zip(recorded.gradients, parameters, strict=True):
        torch.testing.assert_close(found, wanted.grad, rtol=1e-4, atol=1e-6)
    if algorithm == "value" and share < 1:  # on both sides
        assert {
            float(g.sign() * (g.abs() > 0.999 * limit))
            for x in recorded.gradients
            for g in x.flatten()
        } == {
            -1,
            0,
            1,
        }


def test_every_dropout_of_a_run_draws_a_mask_of_its_own(begin, monkeypatch):
    """In each micro-batch, at each step and on each rank; those of one rank, taken twice, are the
    same.
    """
    plain, masks = functional.dropout, {}

    def dropout(x, p=0.5, training=True, inplace=False):
        out = plain(x, p, training, inplace)
        if training and p and len(x) == 4:  # a micro-batch
            masks[name].append((out == 0).flatten()[:512])
        return out

    monkeypatch.setattr(functional, "dropout", dropout)
    for name, rank in (("first", 0), ("again", 0), ("second", 1)):
        masks[name] = []
        monkeypatch.setattr(Task, "global_rank", property(lambda task, rank=rank: rank))
        begin(name, *ONE, "trainer.max_steps=3", "model.dropout=0.5")
    assert (
        len(masks["first"]) == 3 * 2 * 5
    )  # steps, micro-batches, and the embedding and two sublayers of two layers
    assert torch.equal(torch.stack(masks["first"]), torch.stack(masks["again"]))
    drawn = {tuple(mask.tolist()) for mask in masks["first"] + masks["second"]}
    assert len(drawn) == len(masks["first"]) + len(masks["second"])


def test_what_outlives_a_step_holds_no_graph(begin, monkeypatch):
    """Else every step keeps the activations of all before it."""
    after, kept = Task._after, []

    def _after(task):
        after(task)
        kept.extend([task.window, task.now.sums, task.now.norm, *task.now.report.values()])

    monkeypatch.setattr(Task, "_after", _after)
    begin("run", *ONE, *EXPERTS)
    assert len(kept) > 3
    assert not any(tensor.requires_grad for tensor in kept)


def test_a_device_that_gates_updates_keeps_its_state_from_the_first_step_that_is_not_finite(
    begin, monkeypatch
):
    """The flag is read only now and then: until it is, no later step may move the weights."""
    loss, update, seen = OBJECTIVES["language_modeling"].loss, Task._update, []

    def broken(self, model, batch):
        nats, count, report = loss(self, model, batch)
        return (
            (nats * math.nan if len(seen) == 2 else nats),
            count,
            report,
        )  # in the third step only

    def _update(task):
        task._gates = True  # as on a GPU; torch's fused step on the CPU reads found_inf too
        update(task)
        seen.append([w.detach().clone() for w in task.model.parameters()])

    monkeypatch.setattr(OBJECTIVES["language_modeling"], "loss", broken)
    monkeypatch.setattr(Task, "_update", _update)
    monkeypatch.setattr(
        NonFiniteGuard, "on_train_batch_end", lambda *given: None
    )  # the flag is not read yet
    begin("run", *ONE, "trainer.max_steps=5")
    same = [all(map(torch.equal, seen[step], seen[step + 1])) for step in range(4)]
    assert same == [False, True, True, True]


@pytest.mark.parametrize(
    ("lost", "stops", "ended"),
    [(2, True, NonFinite), (-1, True, StoppedBySignal), (2, False, StoppedBySignal)],
)
def test_a_signal_saves_nothing_where_a_step_was_not_finite_and_ends_the_run_as_that_step_does(
    lost, stops, ended
):
    """Unless such steps are to be left out."""
    saved, task = (
        [],
        SimpleNamespace(step=5, nonfinite=torch.tensor(lost), stops_at_nonfinite=stops),
    )
    guard = NonFiniteGuard(Cadence({}, 9), lambda step: NonFinite(f"of step {step}"))
    stopper = SignalStop(guard.cadence, SignalBox(), guard, lambda: saved.append(task.step))
    stopper.signals.number = signal.SIGTERM
    with pytest.raises(ended):
        stopper.on_validation_end(SimpleNamespace(world_size=1), task)
    assert saved == ([] if ended is NonFinite else [5])


def test_micro_batches_that_were_found_are_kept_when_a_run_goes_on(config):
    """A search for the fewest that fit would change the random numbers of the steps to come."""
    made = config("trainer.accumulate=auto")
    task = Task(made, torch.nn.Linear(1, 1), None, total_steps=10)
    task._device, task.step, task.accumulate = torch.device("cuda"), 3, 4
    assert task._micro_batches() == 4
