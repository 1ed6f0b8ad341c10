"""Laws of objectives."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from xformer_kit.data import Batch, Example, collate
from xformer_kit.data.batch import map_tensors, num_rows
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.extra import EXTRAS
from xformer_kit.laws.kinds.registry import Component, law_of
from xformer_kit.laws.random_numbers import Draws
from xformer_kit.laws.tiny_composition import LENGTH, randomise, tiny_config
from xformer_kit.laws.training import different
from xformer_kit.model.build import build_model
from xformer_kit.registry import ConfigError

ROWS = 6  # examples of a batch
TOLERANCE = 1e-5  # of sums that an objective computes in fp32
LETTERS = 97, 123  # the ids of bytes of which texts are made: a to z
TARGETS = ("yes", "no"), ("1.5", "-2")  # of pairs: names of classes, or numbers
# No extra, and those that predict further tokens.
EXTRA_NODES: tuple[dict[str, Any], ...] = (
    {},
    *(
        {name: extra.variants[0]}
        for name, extra in EXTRAS.loaded.items()
        if extra.overrides("multi_token_states")
    ),
)


class Case(NamedTuple):
    """An objective with a model that it can train, and examples of its corpus."""

    name: str
    objective: Any
    model: nn.Module
    examples: list[Example]


@law_of("task", "example")
def example(component: Component) -> None:
    """An example in the loader is a function of the corpus's example and of the generator that it
    is given; the corpus's example is not changed.

    Fails: an example differs for one state of the generator.
    Fix: Draw from `draw` only, keep no state between two examples, and change a copy of the
        corpus's example.
    """
    for case in cases(component):
        for given in case.examples:
            before, draws = deepcopy(given), Draws()
            example_of = partial(_example, case, given)
            one, again = (draws.of(example_of, seed) for seed in (0, 1))
            for name in sorted(draws.names):
                raise component.broken(f"an example is drawn from {name}; draw from `draw`")
            if not _equal(one, again):
                raise component.broken("an example differs for one state of the generator")
            if not _equal(given, before):
                raise component.broken("`example` changes the example of the corpus")


@law_of("task", "micro-batches")
def micro_batches(component: Component) -> None:
    """The loss of a batch is a sum: losses, numbers of tokens and gradients of its micro-batches
    add up to those of the batch.

    Fails: the loss of 2 micro-batches of text differs from that of the batch of 6 rows by
        1.52e+00.
    Fix: Return the sum over tokens, not the mean, and their number; a loss in the report is a
        mean per token.
    """
    for case in cases(component):
        batch = _with_totals(case, _collated(case))
        for count in (2, 3, ROWS):
            parts = [_rows(batch, k, ROWS // count) for k in range(count)]
            _compare(component, case, batch, parts, f"{count} micro-batches of {case.name}")


@law_of("task", "ranks")
def ranks(component: Component) -> None:
    """Losses, numbers of tokens and gradients of the ranks of a step, each with some rows of its
    batch and with totals over all ranks, add up to those of the batch on one rank.

    Fails: the loss of 2 ranks of text differs from that of the batch of 6 rows by 1.52e+00.
    Fix: Take what the loss needs of the whole step from `add_step_totals`, with `total` of each
        local sum, and call `total` on every rank.
    """
    for case in cases(component):
        batch = _collated(case)
        parts = [_rows(batch, k, ROWS // 2) for k in range(2)]
        calls = [_calls_of_total(case, part) for part in parts]
        if len({len(of_rank) for of_rank in calls}) > 1:
            raise component.broken(
                "`add_step_totals` calls `total` on some ranks only; the others would wait for them"
            )
        sums = [sum(values) for values in zip(*calls, strict=True)]
        parts = [_with_totals(case, part, sums) for part in parts]
        whole = _with_totals(case, batch)
        _compare(component, case, whole, parts, f"2 ranks of {case.name}")


def _calls_of_total(case: Case, batch: Batch) -> list[Tensor]:
    """Returns what a rank gives to `total`."""
    given: list[Tensor] = []

    def total(value: Tensor) -> Tensor:
        given.append(value)
        return value

    case.objective.add_step_totals(case.model, batch, total)
    return given


@law_of("task", "padding")
def padding(component: Component) -> None:
    """Padding has no effect: rows by themselves, without padding, add up to the padded batch.

    Fails: the number of tokens of the rows of text without padding differs from that of the
        batch of 6 rows by 3.00e+00.
    Fix: Leave out targets where `tokens.real` is False or a label is -1, in the sum and in the
        number.
    """
    for case in cases(component):
        batch = _with_totals(case, _collated(case))
        parts = [collate([_without_padding(_example(case, one))]) for one in case.examples]
        added = {name for name in batch if name not in parts[0]}  # of the whole step
        parts = [
            one | {name: _rows(batch, k, 1)[name] for name in added} for k, one in enumerate(parts)
        ]
        _compare(component, case, batch, parts, f"the rows of {case.name} without padding")


def cases(component: Component) -> Iterator[Case]:
    """Yields a case for each set of stacks that the objective can train, and each form of corpora
    that it reads.
    """
    kind = component.registry[component.node["name"]]
    for stacks in kind.needs:
        model = "_".join(stacks)
        for extra in EXTRA_NODES if kind.multi_token else EXTRA_NODES[:1]:
            for form in kind.reads:
                mask = {"mask": kind.masks[model]} if model in kind.masks else {}
                config = tiny_config(model, extra=extra, **mask)
                objective = component.create()
                objective.stacks = stacks
                tokenizer = TOKENIZERS.create({"name": "byte"})
                tokenizer.specials = objective.specials
                objective.tokenizer = objective.source_tokenizer = tokenizer
                built = build_model(config, tokenizer.size).double()
                randomise(built)
                yield Case(form, objective, built.train(), _examples(objective, form))


def _examples(objective: Any, form: str) -> list[Example]:
    """Returns ROWS examples of a form of corpora that the objective can transform."""
    draw = np.random.default_rng(0)

    def text(length: int) -> np.ndarray:
        return draw.integers(*LETTERS, size=length)

    if form == "text":
        return [_window(text(LENGTH + 1), LENGTH + 1 - 3 * (row == 1)) for row in range(ROWS)]
    if form == "labelled":
        texts = [text(LENGTH - row) for row in range(ROWS)]
        return [
            {"tokens": one, "labels": np.where(np.arange(len(one)) % 3 == 0, one, -1)}
            for one in texts
        ]
    sources = [text(LENGTH - row) for row in range(ROWS)]
    for targets in TARGETS:
        encoded = [objective.tokenizer.encode(one).astype(np.int64) for one in targets]
        found: list[Example] = [
            {"source": one, "target": encoded[k % 2]} for k, one in enumerate(sources)
        ]
        try:
            objective.example(found[0], torch.Generator())
        except (ConfigError, ValueError):
            continue
        break
    return found


def _window(ids: np.ndarray, real: int) -> Example:
    """Returns a window of a text of which the last tokens may be padding."""
    return {"tokens": ids} | (
        {} if real == len(ids) else {"tokens.real": np.arange(len(ids)) < real}
    )


def _example(case: Case, given: Example) -> Example:
    """Returns an example in the loader, with random numbers of its place among the examples."""
    place = next(k for k, one in enumerate(case.examples) if one is given)
    return case.objective.example(given, torch.Generator().manual_seed(place))


def _without_padding(example: Example) -> Example:
    """Returns the example without the padding of a text."""
    real = example.get("tokens.real")
    if real is None:
        return example
    return {
        name: values[real] if len(values) == len(real) else values
        for name, values in example.items()
        if name != "tokens.real"
    }


def _collated(case: Case) -> Batch:
    return collate([_example(case, one) for one in case.examples])


def _with_totals(case: Case, batch: Batch, sums: Sequence[Any] | None = None) -> Batch:
    """Returns the batch of a rank with totals; sums: what `total` returns, in order. None: there is
    one rank.
    """
    left = None if sums is None else iter(sums)
    total: Any = lambda value: value if left is None else next(left)
    return dict(case.objective.add_step_totals(case.model, batch, total))


def _rows(batch: Batch, part: int, rows: int) -> Batch:
    return map_tensors(batch, lambda x: x[part * rows : (part + 1) * rows])


def _compare(component: Component, case: Case, batch: Batch, parts: list[Batch], what: str) -> None:
    """Raises KindLawBroken if losses, numbers of tokens or gradients of the parts do not add up."""
    expected, found = _sums(case, [batch]), _sums(case, parts)
    for name, value in expected.items():
        bound = TOLERANCE * max(1.0, value.abs().max().item())
        gap = (found[name] - value).abs().max().item()
        if not gap <= bound:
            raise component.broken(
                f"{name} of {what} differs from that of the batch of {num_rows(batch)} rows by"
                f" {gap:.2e}"
            )


def _sums(case: Case, batches: list[Batch]) -> dict[str, Tensor]:
    """Returns the sums of the losses, the numbers of tokens and the gradients of batches."""
    case.model.zero_grad()
    sums = {"the loss": torch.zeros(()), "the number of tokens": torch.zeros(())}
    for batch in batches:
        nats, count, report = case.objective.loss(case.model, batch)
        total = nats + report["loss"] * count if "loss" in report else nats
        total.backward()
        sums["the loss"] = sums["the loss"] + total.detach().double()
        sums["the number of tokens"] = sums["the number of tokens"] + torch.as_tensor(count)
    named = case.model.named_parameters()
    return sums | {f"the gradient of {n}": p.grad for n, p in named if p.grad is not None}


def _equal(one: Example, other: Example) -> bool:
    tensors = ({k: torch.as_tensor(v) for k, v in each.items()} for each in (one, other))
    return one.keys() == other.keys() and different(*tensors) is None
