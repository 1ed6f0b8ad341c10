"""Description of a model from its config: the tree of modules with parameters and FLOPs, memory,
kernels, and the origin of each value.

Returns plain data. The model is built on the meta device and never allocated.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch

from xformer_kit.config.faults.size import ensure_countable
from xformer_kit.data.run_length import known_steps
from xformer_kit.inspect import flops, memory, parameters
from xformer_kit.inspect.explain import AttentionExplanation, attentions
from xformer_kit.inspect.layers import format_ranges, group_equal
from xformer_kit.inspect.losses import LossRun, loss_runs
from xformer_kit.inspect.provenance import ConfigValue, Provenance
from xformer_kit.inspect.tree import ModuleNode, tree
from xformer_kit.inspect.vocabulary import vocabulary
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.objective import objective_of
from xformer_kit.plan import StackPlan, max_len, stacks
from xformer_kit.tensors import ParameterInfo, canonical, parameter_table

T = TypeVar("T")


class KernelChoice(NamedTuple):
    """The kernel of some attentions, how it runs, and why no faster kernel is used."""

    where: str
    kernel: str
    why: tuple[str, ...]


class ParameterRow(NamedTuple):
    """The description of parameters that differ only in their layer, whose number is then *."""

    name: str
    number: int  # of these parameters
    shape: tuple[int, ...]
    info: ParameterInfo


class Description(NamedTuple):
    """A model before it is built."""

    vocab_size: int
    active_parameters: int  # parameters that one token uses, on average
    seq_len: int  # tokens
    precision: str
    tree: ModuleNode
    flops: flops.Flops | None  # at seq_len, of the source and of the target; None if unknown
    training_memory: memory.TrainingMemory | None  # None if unknown
    cache: memory.CacheMemory
    kernels: list[KernelChoice]
    losses: list[LossRun]
    values: list[ConfigValue]
    unknown: list[str]  # messages: which of these are None, and why
    given_logits: float  # share of the tokens whose logits are computed in training
    parameters: list[ParameterRow]
    steps: int | None  # optimizer steps of a run; None if they depend on the size of the data
    frozen_parameters: int = 0  # not trained: of model.freeze, or all but the adapters of lora


def describe(
    config: Mapping[str, Any], vocab_size: int | None = None, provenance: Provenance | None = None
) -> Description:
    """Describes the model of a valid config.

    `vocab_size` replaces the tokenizer's. Raises ConfigError if the size of the vocabulary is not
    known, and if no machine can hold the model.
    """
    ensure_countable(config)
    vocab_size = vocab_size or vocabulary(config)
    seq_len, plans = config["data"]["seq_len"], stacks(config)
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    unknown: list[str] = []
    given_logits = objective_of(config).given_logits
    counted = _try("FLOPs", lambda: flops.count(model, seq_len, given_logits), unknown)
    training_memory = _try(
        "memory of a training step", lambda: memory.training_memory(config, vocab_size), unknown
    )
    return Description(
        vocab_size,
        parameters.active(model),
        seq_len,
        memory.precision(config),
        tree(model, plans, counted and counted.modules),
        counted,
        training_memory,
        memory.cache_memory(model, max_len(config)),
        list(kernel_choices(config, plans, model)),
        list(loss_runs(config, model)),
        list((provenance or Provenance(config)).values(plans)),
        unknown,
        given_logits,
        _parameter_rows(model),
        None if config["trainer"].get("max_epochs") else known_steps(config),
        parameters.frozen(model, config),
    )


def _parameter_rows(model: Model) -> list[ParameterRow]:
    groups: dict[tuple[str, tuple[int, ...], ParameterInfo], list[str]] = {}
    shapes = {canonical(name): tuple(p.shape) for name, p in model.named_parameters()}
    for name, info in parameter_table(model).items():
        shape = shapes[name]
        groups.setdefault((re.sub(r"\.\d+\.", ".*.", name, count=1), shape, info), []).append(name)
    return [
        ParameterRow(pattern if len(names) > 1 else names[0], len(names), shape, info)
        for (pattern, shape, info), names in groups.items()
    ]


def _try(name: str, compute: Callable[[], T], unknown: list[str]) -> T | None:
    """Returns compute(). If it raises, because a user's component reads values, returns None and
    adds a message to `unknown`.
    """
    try:
        return compute()
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        unknown.append(f"{name}: not known; the model cannot run without values ({reason}).")
        return None


def kernel_choices(
    config: Mapping[str, Any], plans: list[StackPlan], model: Model
) -> Iterator[KernelChoice]:
    """The kernel of each attention, with equal choices of a stack's layers as one."""
    for plan in plans:
        choices = ((depth, _choice(item)) for depth, item in attentions(config, plan, model))
        for choice, depths in group_equal(choices).items():
            yield choice._replace(where=f"{plan.name}.{format_ranges(depths)}.{choice.where}")


def _choice(item: AttentionExplanation) -> KernelChoice:
    if item.kernel == "none":
        return KernelChoice(
            item.where, "none", (f"{item.component} computes without one of the kernels",)
        )
    how = [item.run.how] if item.run and item.run.how else []
    why = [f"not {other}: {reason}" for other, reason in item.faster] or ["the fastest that can"]
    return KernelChoice(item.where, item.kernel, (*how, *why))
