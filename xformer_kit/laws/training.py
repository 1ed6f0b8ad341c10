"""Laws of training mode: dropout, and all that a component does only in training.

Every option named `dropout` is above 0, so that its code runs.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
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
from xformer_kit.optim import OPTIMIZERS
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
    """
    model, draws = training_model(composition), Draws()
    operations = [RandomOperations() for _ in range(3)]
    ids, source = composition.ids, composition.source

    def step(recorder: RandomOperations) -> StepTensors:
        with recorder:
            loss, _ = _backward(model, ids, source)
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {"the loss": loss, **grads}

    seeds = 0, 0, 1
    first, second, _ = (
        draws.of(partial(step, o), n) for o, n in zip(operations, seeds, strict=True)
    )
    for name in sorted(draws.names - {TORCH}):
        raise composition.broken(
            f"a training step draws from {name}, which a run does not set before each step; draw"
            f" from {TORCH}, e.g. by torch.rand_like"
        )
    if (name := different(first, second)) is not None:
        own = operations[0].with_own_generator
        what = f"{own[0]} draws" if own else "something counts its calls, or draws"
        raise composition.broken(
            f"two training steps from one state of {TORCH} differ ({name}): {what} from a generator"
            f" of its own; draw from {TORCH}, e.g. by torch.rand_like"
        )
    if draws.sets_state:
        raise composition.broken(f"a training step sets the state of {TORCH}")
    for name in operations[0].equal_to(operations[2]):
        raise composition.broken(f"{name} draws the same numbers from each state of {TORCH}")


@law("evaluation")
@torch.no_grad()
def evaluation(composition: Composition) -> None:
    """In evaluation mode nothing is drawn, in a forward pass and in cached generation, and the
    output does not depend on the states of generators.
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
    """
    config = with_dropout(composition.config)
    one, other = (Composition(config, composition.law).trainable_model().train() for _ in range(2))
    optimizer, optimizer_of_other = map(_optimizer, (one, other))
    _train(composition, one, optimizer, range(SAVED))
    saved = io.BytesIO()
    torch.save([one.state_dict(), optimizer.state_dict()], saved)
    _train(composition, one, optimizer, range(SAVED, STEPS))
    saved.seek(0)
    state, optimizer_state = torch.load(saved, weights_only=True)
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

    def build() -> Model:
        config = with_dropout(composition.config)
        return Composition(config, composition.law).trainable_model().train()

    return composition.compute_once("model in training", build)


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


def different(first: StepTensors, second: StepTensors) -> str | None:
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
    return OPTIMIZERS["adamw"](model, lr=1e-3)


def _train(composition: Composition, model: Model, optimizer: Optimizer, steps: range) -> None:
    """Trains a model for these steps, each on other tokens."""
    for step in steps:
        with seeded(step):
            _, report = _backward(model, (composition.ids + step) % VOCAB, composition.source)
        optimizer.step()
        model.after_step({name: value.detach() for name, value in report.items()})


def _backward(model: Model, ids: Tensor, source: Tensor | None) -> tuple[Tensor, Report]:
    """Computes the gradients of a step. Returns its loss and the report."""
    model.zero_grad()
    tokens = None if source is None else Tokens(ids=source)
    hidden, report = model.hidden(Tokens(ids=ids), source=tokens, multi_token=True)
    logits = model.head(hidden).flatten(0, -2)
    target = ids.roll(-1, 1).flatten().repeat(len(hidden))
    loss = F.cross_entropy(logits, target) + report.pop("loss", 0)
    loss.backward()
    return loss.detach(), report
