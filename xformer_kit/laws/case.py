"""What is a law tried on? A tiny composition in which nothing can hide.

Sizes differ from axis to axis, so that no two can be swapped unseen, and every parameter is randomised (biases, weights
of norms and scales too), so that one that is left out is seen. Laws run in float64 where they do not say otherwise.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.config import check, compose
from xformer_kit.init import generator
from xformer_kit.model import Model
from xformer_kit.plan import KINDS, broken_laws, contexts, named, towers
from xformer_kit.registry import Context
from xformer_kit.tokens import Tokens

VOCAB, BATCH, LENGTH, DIM, LAYERS, MAX_LEN = 37, 3, 13, 36, 2, 29
SIZES = {"heads": 6, "kv_heads": 3, "head_dim": 10, "width": 19, "window": 5}  # of options that have these names
Node = Mapping[str, Any]


@cache
def _composed() -> str:
    return json.dumps(compose(["logger=none"]))


def plain() -> dict[str, Any]:
    """What `train.py` composes without overrides, but for the logger."""
    return json.loads(_composed())


def tiny(**changes: Any) -> dict[str, Any]:
    """A tiny config: `changes` are nodes or names of parts (attn=...), a `decoder`, and values of `model`."""
    config = plain()
    for kind in KINDS:
        config[kind] = sized(kind, changes.pop(kind, config[kind]["name"]))
    config["data"] |= {"seq_len": LENGTH, "batch_size": BATCH}
    config["model"] |= {"dim": DIM, "layers": LAYERS, "vocab_multiple": 8, "max_len": MAX_LEN, **changes}
    return copy.deepcopy(config)


def sized(kind: str, node: Node | str) -> dict[str, Any]:
    """A complete node of a part, tiny where the difference does not say otherwise."""
    node, registry = named(node), KINDS[kind]
    options = registry.options(node["name"])
    small = {key: value for key, value in SIZES.items() if key in options}
    return registry.defaults(node["name"]) | small | dict(node)


def faults(config: Node) -> list[str]:
    """Why the composition is refused, whatever it is trained on; empty where it is not."""
    return check(config, data=False, task=False)


class LawBroken(AssertionError):  # noqa: N818  (the name that reads as what happened)
    """A composition that breaks a law. The message has the law, the numbers, and the overrides that reproduce it."""

    def __init__(self, law: str, what: str, config: Node):
        self.law, self.what = law, what
        super().__init__(f"the law '{law}' is broken: {what}. Seen with: {' '.join(overrides(config))}")


class Case:
    """One composition, with models, tokens and what its parts say of themselves."""

    def __init__(self, config: Node, law: str, under: tuple[str, ...] = ()):
        self.config, self.law, self.under = config, law, under

    def broken(self, what: str) -> LawBroken:
        return LawBroken(self.law, what, self.config)

    def same(self, got: Tensor, expected: Tensor, what: str, tolerance: float = 1e-9) -> None:
        """Raises LawBroken where the two differ by more than `tolerance` x the largest value expected (at least 1)."""
        bound = tolerance * max(1.0, expected.abs().max().item()) if expected.numel() else 0.0
        gap = (got - expected).abs().max().item() if expected.numel() else 0.0
        if not gap <= bound:
            raise self.broken(f"{what}: the gap is {gap:.2e}, allowed is {bound:.2e}")

    def model(self, dtype: torch.dtype = torch.float64, **changes: Any) -> Model:
        """A randomised model in evaluation mode; `changes` replace parts of the config."""
        model = Model({**self.config, **changes}, VOCAB)
        randomise(model)
        return model.to(dtype).eval()

    @cached_property
    def ids(self) -> Tensor:
        """(batch, length) of token ids, all different within a row."""
        draw = torch.Generator().manual_seed(5)
        return torch.stack([torch.randperm(VOCAB, generator=draw)[:LENGTH] for _ in range(BATCH)])

    @cached_property
    def looks(self) -> list[Context]:
        """What each attention meets."""
        return [context for kind, context in self.sublayers if kind == "attn"]

    @cached_property
    def sublayers(self) -> list[tuple[str, Context]]:
        return [
            (sub.kind, context)
            for plan in towers(self.config)
            for block in plan.variants.values()
            for sub, context in contexts(self.config, plan, block)
        ]

    @property
    def sees_future(self) -> bool:
        return any(context.facts["mask"]["sees_future"] for context in self.looks)

    def hooks(self) -> set[str]:
        """The places at which some position enters."""
        return {hook for context in self.looks for hook in context.facts["position"]["hooks"]}

    @cached_property
    def breaks(self) -> dict[str, str]:
        """Law -> which part says that it breaks it, and why."""
        return {law: reason for plan in towers(self.config) for law, reason in broken_laws(plan).items()}

    def exempt(self) -> str | None:
        """Why a part is allowed to break the law, where one is."""
        return next((self.breaks[law] for law in (self.law, *self.under) if law in self.breaks), None)


@torch.no_grad()
def randomise(model: nn.Module) -> None:
    """Every parameter moved away from its start by a draw that depends on its name and shape alone."""
    for name, parameter in model.named_parameters():
        draw = torch.randn(parameter.shape, generator=generator(1, name))
        if parameter.ndim < 2:
            parameter.add_(draw.to(parameter.dtype), alpha=0.3)
        else:
            wide = 0.3 if name.startswith("embed") else 0.7 * parameter.shape[-1] ** -0.5
            parameter.copy_(draw * wide)


def hidden(model: Model, ids: Tensor, **fields: Tensor | None) -> Tensor:
    return model.hidden(Tokens(ids=ids, **fields))[0]


def overrides(config: Node) -> list[str]:
    """The command line that composes a config, as far as it differs from the plain one."""
    words: list[str] = []
    base = plain()
    for key, value in config.items():
        if key in ("name", "logger") or value == base.get(key):
            continue
        if key in KINDS:
            words += _part(key, value, base[key])
        elif isinstance(value, Mapping):
            words += [f"{key}.{k}={_text(v)}" for k, v in value.items() if base[key].get(k, ...) != v]
        else:
            words.append(f"{key}={_text(value)}")
    return words


def _part(kind: str, node: Node, base: Node) -> Iterator[str]:
    name = node["name"]
    if name != base["name"]:
        yield f"{kind}={name}"
    known = base if name == base["name"] else KINDS[kind].defaults(name)
    yield from (f"{kind}.{key}={_text(value)}" for key, value in node.items() if known.get(key, ...) != value)


def _text(value: Any) -> str:
    """A value as Hydra's grammar reads it."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_text(v) for v in value) + "]"
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
