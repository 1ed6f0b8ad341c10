"""Laws of training mode: dropout, and all that a component does only in training.

Every option named `dropout` is above 0, so that its code runs.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from xformer_kit.laws.generation import PROMPT, cached_logits
from xformer_kit.laws.numerics import StepTensors
from xformer_kit.laws.random_numbers import TORCH, Draws, RandomOperations, seeded
from xformer_kit.laws.registry import law
from xformer_kit.laws.sequence import changed, influence
from xformer_kit.laws.tiny_composition import (
    LENGTH,
    VOCAB,
    Composition,
    faults,
    with_model_options,
)
from xformer_kit.model.model import Model
from xformer_kit.optim import create_optimizer
from xformer_kit.plan import KINDS
from xformer_kit.registry import Node, Registry
from xformer_kit.tensors.report import Report
from xformer_kit.tensors.tokens import Tokens

DROPOUT = 0.2
STEPS, SAVED = 2, 1  # optimizer steps, and those of them before the checkpoint
CHUNKS = (PROMPT, 1, LENGTH - PROMPT - 1)  # a prompt, one token, several


@law("causality in training", prerequisites=("causality",))
def causality_in_training(composition: Composition) -> None:
    """In training mode, too, later tokens do not influence earlier outputs: by gradient, with the
    same random numbers in each pass, and by perturbation without dropout, since another token may
    go to another expert, where it draws before or after others.

    Fails: in training the output at 0 has a gradient of 3.1e-02 to token 1.
    Fix: Compute the same in training as in evaluation, except for random numbers: no mean, rank or
        normalisation over the sequence or the batch `if self.training`.
    """
    composition.require_causal()
    model, ids = training_model(composition), composition.ids
    for slot in (0, LENGTH // 2):
        with seeded(0):
            later = influence(composition, model, ids[:1], slot)[slot + 1 :]
        if later.max() != 0:
            raise composition.broken(
                f"in training the output at {slot} has a gradient of {later.max():.2e} to token"
                f" {slot + 1 + int(later.argmax())}"
            )
    with torch.no_grad(), mode(composition.model_with_gradients, training=True) as model:
        logits = []
        for text in (ids, changed(ids, slot)):
            with seeded(0):
                logits.append(composition.all_logits(model, text)[:, :slot])
        message = f"in training token {slot} changes what comes before it"
        composition.assert_close(logits[1], logits[0], message)


@law("randomness")
def randomness(composition: Composition) -> None:
    """Two training steps from one state of torch's global generator are equal bit for bit, and from
    different states they differ if anything is drawn. Nothing is drawn from other generators: a run
    sets the state of only this one before each step.

    Fails: a training step draws from numpy's global generator, which a run does not set.
    Fix: Draw with torch, on the device of x and without a generator: torch.rand_like(x),
        F.dropout(x, p, self.training). Keep no counter of calls.
    """
    model, draws = training_model(composition), Draws()
    ids, source = composition.ids, composition.source
    recorder, other = RandomOperations(), RandomOperations()

    def forward(recorder: AbstractContextManager[Any]) -> Tensor:
        with recorder:  # makes operations slower, so not in the backward pass
            return loss_of(model, ids, source)[0]

    def step(recorder: AbstractContextManager[Any]) -> StepTensors:
        _backward(model, loss := forward(recorder))
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {"the loss": loss.detach(), **grads}

    first, second = (draws.of(partial(step, one), seed=0) for one in (recorder, nullcontext()))
    draws.of(partial(forward, other), seed=1)
    for name in sorted(draws.names - {TORCH}):
        raise composition.broken(
            f"a training step draws from {name}, which a run does not set before each step; draw"
            f" from {TORCH}, e.g. by torch.rand_like"
        )
    if (name := different(first, second)) is not None:
        own = recorder.with_own_generator
        what = f"{own[0]} draws" if own else "something counts its calls, or draws"
        raise composition.broken(
            f"two training steps from one state of {TORCH} differ ({name}): {what} from a generator"
            f" of its own; draw from {TORCH}, e.g. by torch.rand_like"
        )
    if draws.sets_state:
        raise composition.broken(f"a training step sets the state of {TORCH}")
    for name in recorder.equal_to(other):
        raise composition.broken(f"{name} draws the same numbers from each state of {TORCH}")


@law("evaluation")
@torch.no_grad()
def evaluation(composition: Composition) -> None:
    """In evaluation mode nothing is drawn, in a forward pass and in cached generation, and the
    output does not depend on the states of generators.

    Fails: in evaluation mode something draws from torch's global generator.
    Fix: Pass `self.training` to F.dropout, and return x before drawing if it is false.
    """
    cached = not composition.sees_future and "cache" not in composition.broken_laws

    def outputs() -> StepTensors:
        found = {"logits": composition.all_logits(model)}
        return found | (
            {"cached logits": cached_logits(composition, model, CHUNKS)} if cached else {}
        )

    draws = Draws()
    with mode(training_model(composition), training=False) as model:
        first, other = (draws.of(outputs, seed) for seed in (0, 1))
    for name in sorted(draws.names):
        raise composition.broken(f"in evaluation mode something draws from {name}")
    if (name := different(first, other)) is not None:
        raise composition.broken(
            f"in evaluation mode the {name} of two calls differ: something draws from a generator"
            " of its own, or counts its calls"
        )


@law("resume", prerequisites=("randomness",))
def resume(composition: Composition) -> None:
    """Two optimizer steps equal one step, saving, loading into a new model, and another step:
    all parameters and buffers are equal bit for bit.

    Fails: decoder.0.ffn.factor is another one after 2 steps if the model is saved after 1.
    Fix: Hold it in a buffer, register_buffer(name, tensor), that `after_step` changes, not in an
        attribute or in a buffer with persistent=False.
    """
    one, other = (_training_model(composition) for _ in range(2))
    optimizer, optimizer_of_other = map(_optimizer, (one, other))
    _train(composition, one, optimizer, range(SAVED))
    state, optimizer_state = deepcopy((one.state_dict(), optimizer.state_dict()))
    _train(composition, one, optimizer, range(SAVED, STEPS))
    other.load_state_dict(state)
    optimizer_of_other.load_state_dict(optimizer_state)
    _train(composition, other, optimizer_of_other, range(SAVED, STEPS))
    for name in _different_tensors(one, other):
        raise composition.broken(
            f"{name} is another one after {STEPS} steps if the model is saved after {SAVED} and"
            " loaded: hold what later steps need in a persistent buffer"
        )


def training_model(composition: Composition) -> Model:
    """Returns a model with dropout in training mode, which laws share that write only gradients."""
    return composition.compute_once("model in training", lambda: _training_model(composition))


def _training_model(composition: Composition) -> Model:
    config = composition.compute_once("dropout", lambda: with_dropout(composition.config))
    return Composition(config, composition.law).trainable_model().train()


def with_dropout(config: Node) -> Node:
    """Returns the config with every `dropout` that components and the model accept above 0."""
    for kinds in (KINDS, ()):
        changes = {kind: _above_zero(KINDS[kind], config[kind]) for kind in kinds}
        changed = {**with_model_options(config, dropout=DROPOUT), **changes}
        if not faults(changed):
            return changed
    return config


def _above_zero(registry: Registry, node: Node) -> dict[str, Any]:
    """Returns the node of a component with dropout, also in the components inside it."""
    nested = registry.inner(node["name"])
    changes: dict[str, Any] = {
        option: _above_zero(inner, node[option])
        for option, inner in nested.items()
        if isinstance(node.get(option), dict)
    }
    if isinstance(registry.defaults(node["name"]).get("dropout"), float):
        changes["dropout"] = DROPOUT
    return {**node, **changes}


@contextmanager
def mode(model: Model, training: bool) -> Iterator[Model]:
    """Yields the model in training or evaluation mode, and restores the other one."""
    model.train(training)
    try:
        yield model
    finally:
        model.train(not training)


def different(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> str | None:
    """Returns the name of a tensor that is not the same in both, bit for bit; None if all are."""
    for name, value in first.items():
        if name not in second or not torch.equal(value.nan_to_num(), second[name].nan_to_num()):
            return name
    return None


def _different_tensors(one: Model, other: Model) -> Iterator[str]:
    """Yields names of tensors that differ between two models: of a buffer, since parameters may
    differ because of it, and of a parameter.
    """
    for kind in ("named_buffers", "named_parameters"):
        if name := different(*(dict(getattr(model, kind)()) for model in (one, other))):
            yield name


def _optimizer(model: Model) -> Optimizer:
    return create_optimizer({"name": "adamw", "lr": 1e-3}, model)


def _train(composition: Composition, model: Model, optimizer: Optimizer, steps: range) -> None:
    """Trains a model for these steps, each on other tokens."""
    for step in steps:
        with seeded(step):
            loss, report = loss_of(model, (composition.ids + step) % VOCAB, composition.source)
            _backward(model, loss)
        optimizer.step()
        model.after_step({name: value.detach() for name, value in report.items()})


def loss_of(model: Model, ids: Tensor, source: Tensor | None) -> tuple[Tensor, Report]:
    """Returns the loss of a training step, and the rest of the report."""
    tokens = None if source is None else Tokens(ids=source)
    hidden, report = model.hidden(Tokens(ids=ids), source=tokens, multi_token=True)
    logits = model.head(hidden).flatten(0, -2)
    target = ids.roll(-1, 1).flatten().repeat(len(hidden))
    return F.cross_entropy(logits, target) + report.pop("loss", 0), report


def _backward(model: Model, loss: Tensor) -> None:
    """Computes the gradients of a step."""
    model.zero_grad()
    loss.backward()
