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
from tasks.callbacks.stopping import NonFiniteGuard, SignalStop
from tasks.modules.auto_accumulate import micro_batches
from tasks.modules.module import Task
from tasks.process.exit_codes import NonFinite, SignalBox, StoppedBySignal
from tasks.process.ranks import DataRank
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
    """An optimizer step: the model before it, its micro-batches, and the gradients at the
    optimizer.
    """

    def __init__(self, monkeypatch):
        self.batches = []
        loss, update = Task._micro_batch_loss, Task._update_weights

        def _micro_batch_loss(task, batch, micro):
            if not micro:
                self.model, self.objective = copy.deepcopy(task.model), task.objective
            self.batches.append(batch)
            return loss(task, batch, micro)

        def _update_weights(task):
            self.gradients = [p.grad.clone() for p in task.model.parameters()]
            return update(task)

        monkeypatch.setattr(Task, "_micro_batch_loss", _micro_batch_loss)
        monkeypatch.setattr(Task, "_update_weights", _update_weights)

    def reference(self) -> list[torch.nn.Parameter]:
        """Returns the parameters with the gradients of the mean over the tokens of all
        micro-batches, with the auxiliary loss.
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


def test_gradients_are_those_of_the_mean_loss_over_all_tokens(
    recorded, pairs, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = [
        "task_defaults=null",
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


def test_dropout_masks_differ_between_steps_micro_batches_and_ranks(begin, monkeypatch):
    """Masks of the same run, repeated, are equal."""
    plain, masks = functional.dropout, {}

    def dropout(x, p=0.5, training=True, inplace=False):
        out = plain(x, p, training, inplace)
        if training and p and len(x) == 4:  # a micro-batch
            masks[name].append((out == 0).flatten()[:512])
        return out

    monkeypatch.setattr(functional, "dropout", dropout)
    for name, rank in (("first", 0), ("again", 0), ("second", 1)):
        masks[name] = []
        monkeypatch.setattr(DataRank, "of", lambda trainer, rank=rank: DataRank(rank, 1))
        begin(name, *ONE, "trainer.max_steps=3", "model.dropout=0.5")
    assert (
        len(masks["first"]) == 3 * 2 * 5
    )  # steps, micro-batches, and the embedding and two sublayers of two layers
    assert torch.equal(torch.stack(masks["first"]), torch.stack(masks["again"]))
    drawn = {tuple(mask.tolist()) for mask in masks["first"] + masks["second"]}
    assert len(drawn) == len(masks["first"]) + len(masks["second"])


def test_state_kept_after_a_step_holds_no_graph(begin, monkeypatch):
    """Otherwise every step would keep the activations of all steps before it."""
    after, kept = Task._finish_step, []

    def _finish_step(task):
        after(task)
        kept.extend(
            [
                task.metric_sums,
                task.step_state.sums,
                task.step_state.grad_norm,
                *task.step_state.report.values(),
            ]
        )

    monkeypatch.setattr(Task, "_finish_step", _finish_step)
    begin("run", *ONE, *EXPERTS)
    assert len(kept) > 3
    assert not any(tensor.requires_grad for tensor in kept)


def test_weights_do_not_change_after_a_nonfinite_step_on_a_device(begin, monkeypatch):
    """The flag is read only now and then; no later step may change the weights before."""
    loss, update, seen = OBJECTIVES["language_modeling"].loss, Task._update_weights, []

    def broken(self, model, batch):
        nats, count, report = loss(self, model, batch)
        return (
            (nats * math.nan if len(seen) == 2 else nats),
            count,
            report,
        )  # in the third step only

    def _update_weights(task):
        task._skips_on_device = (
            True  # as on a GPU; torch's fused step on the CPU reads found_inf too
        )
        update(task)
        seen.append([w.detach().clone() for w in task.model.parameters()])

    monkeypatch.setattr(OBJECTIVES["language_modeling"], "loss", broken)
    monkeypatch.setattr(Task, "_update_weights", _update_weights)
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
def test_a_signal_after_a_nonfinite_step_saves_nothing(lost, stops, ended):
    """Except with trainer.on_nonfinite=skip."""
    saved, task = (
        [],
        SimpleNamespace(step=5, first_nonfinite=torch.tensor(lost), stops_at_nonfinite=stops),
    )
    guard = NonFiniteGuard(Cadence({}, 9), lambda step: NonFinite(f"of step {step}"))
    stopper = SignalStop(guard.cadence, SignalBox(), guard, lambda: saved.append(task.step))
    stopper.signals.number = signal.SIGTERM
    with pytest.raises(ended):
        stopper.on_validation_end(SimpleNamespace(world_size=1), task)
    assert saved == ([] if ended is NonFinite else [5])


def test_a_resumed_run_keeps_its_number_of_micro_batches(config):
    """A new search would change the random numbers of later steps."""
    made = config("trainer.accumulate=auto")
    task = Task(made, torch.nn.Linear(1, 1), None, total_steps=10)
    task._device, task.step, task.accumulate = torch.device("cuda"), 3, 4
    assert micro_batches(task) == 4
