"""What is this model? Its tree with parameters and FLOPs, its memory, its kernels, and where each
value came from.

Plain data, from a valid config alone: the model is built on the meta device and never allocated.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from xformer_kit.config.size import ensure_countable
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.inspect import flops, memory, parameters
from xformer_kit.inspect.explain import AttentionExplanation, attentions, group_equal
from xformer_kit.inspect.provenance import Provenance, Value
from xformer_kit.inspect.tree import Node, ranges, tree
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.objective import objective_of
from xformer_kit.plan import StackPlan, max_len, stacks
from xformer_kit.registry import config_error


class Choice(NamedTuple):
    """The kernel of some attentions, and what speaks against the faster ones."""

    where: str
    kernel: str
    why: tuple[str, ...]


class Description(NamedTuple):
    vocab_size: int
    active: int  # parameters that a token meets, on average
    seq_len: int  # tokens
    precision: str
    tree: Node
    forward: float | None  # FLOPs per token at seq_len, of a source as of a target
    training: float | None
    training_memory: memory.TrainingMemory | None
    cache: memory.CacheMemory
    kernels: list[Choice]
    values: list[Value]
    unknown: list[str]  # sentences: figures that could not be had, and why
    given_logits: float  # share of the tokens that the head is given in training


def describe(
    config: Mapping[str, Any], vocab_size: int | None = None, origins: Provenance | None = None
) -> Description:
    """Everything there is to know of a valid config's model before it is built.

    `vocab_size` stands in for the tokenizer's. Raises ConfigError where the size of the vocabulary
    is not known, and where no machine holds the model.
    """
    ensure_countable(config)
    vocab_size = vocab_size or vocabulary(config)
    seq_len, plans = config["data"]["seq_len"], stacks(config)
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    unknown: list[str] = []
    given = objective_of(config).given_logits
    counted = _attempt("FLOPs", unknown, lambda: flops.count(model, seq_len, given))
    trained = _attempt(
        "memory of a training step", unknown, lambda: memory.training_memory(config, vocab_size)
    )
    return Description(
        vocab_size,
        parameters.active(model),
        seq_len,
        memory.precision(config),
        tree(model, plans, counted and counted.modules),
        counted and counted.forward,
        counted and counted.training,
        trained,
        memory.cache_memory(model, max_len(config)),
        list(kernels(config, plans, model)),
        list((origins or Provenance(config)).values(plans)),
        unknown,
        given,
    )


def vocabulary(config: Mapping[str, Any]) -> int:
    """Tokens: model.vocab_size, else the tokenizer's where it is fixed or an option, with those
    that the task adds. Raises ConfigError otherwise.
    """
    if size := config["model"].get("vocab_size"):
        return size
    node = config["tokenizer"]
    size = node.get("vocab_size") or getattr(TOKENIZERS[node["name"]], "vocab_size", None)
    if isinstance(size, int):
        return size + len(objective_of(config).specials)
    raise config_error(
        "model.vocab_size",
        f"is not known before tokenizer '{node['name']}' has read the text",
        got="null",
        fix="Set it, e.g. model.vocab_size=1024.",
    )


def _attempt(what: str, unknown: list[str], figure: Any) -> Any:
    """A figure, or None if the model reads values, as a user's own component may."""
    try:
        return figure()
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        unknown.append(
            f"{what}: not known, for the model cannot run without values ({said.rstrip('.')})."
        )
        return None


def kernels(config: Mapping[str, Any], plans: list[StackPlan], model: Model) -> Iterator[Choice]:
    """For each kind of attention the kernel that it runs on, how it runs one sequence, and why not
    a faster one.
    """
    for plan in plans:
        found = ((depth, _choice(item)) for depth, item in attentions(config, plan, model))
        for choice, depths in group_equal(found).items():
            yield choice._replace(where=f"{plan.name}.{ranges(depths)}.{choice.where}")


def _choice(item: AttentionExplanation) -> Choice:
    if item.kernel == "none":
        return Choice(item.where, "none", (f"{item.component} computes in a way of its own",))
    how = [item.run.how] if item.run and item.run.how else []
    why = [f"not {other}: {reason}" for other, reason in item.faster] or ["the fastest that can"]
    return Choice(item.where, item.kernel, (*how, *why))
