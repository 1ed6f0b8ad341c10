"""The tiny compositions for which laws are checked.

All axes have different sizes, so that swapped axes raise an error, and every parameter is random,
also biases, weights of norms and scales, so that an unused parameter changes the result. Laws
compute in float64 unless stated otherwise.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from xformer_kit.config import check, compose
from xformer_kit.config.machine import untrained_on
from xformer_kit.config.overrides import value_text
from xformer_kit.extra import EXTRAS
from xformer_kit.model.build import build_model
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.initialise import generator
from xformer_kit.model.model import Encoded, Model
from xformer_kit.model.tokens import Tokens
from xformer_kit.plan import KINDS, OUTPUT_LAWS, as_node, stack_plan, stacks
from xformer_kit.position import POSITIONS
from xformer_kit.registry import Context, Fault, Node, complete_mapping, to_plain

VOCAB, BATCH, LENGTH, DIM, LAYERS, MAX_LEN = 37, 3, 13, 36, 2, 29
SIZE_OF = {1: 1.0, 2: 4.0, 3: 0.25}  # seed of the weights -> factor of matrices
SOURCE, SOURCE_VOCAB = 11, 41  # tokens of a source; its vocabulary, if its embeddings are its own
# Option name -> value in a tiny composition.
SIZES: dict[str, Any] = {
    "heads": 6,
    "kv_heads": 3,
    "head_dim": 10,
    "width": 19,
    "window": 5,
    "chunk": 4,
    "stride": 4,
    "summary": 1,
    "block": 2,
    "count": 2,
    "experts": 5,
    "rank": 4,
    "landmarks": 3,
}
T = TypeVar("T")


# Model -> overrides that choose it and a task that trains it.
MODELS: dict[str, tuple[str, ...]] = {
    "decoder": (),
    "encoder": ("model=encoder", "task=masked_language_modeling"),
    "encoder_decoder": ("model=encoder_decoder", "task=seq2seq"),
}


@cache
def _composed(model: str) -> dict[str, Any]:
    return compose(["logger=none", *MODELS[model]])


def default_config(model: str = "decoder") -> dict[str, Any]:
    """Returns the default config of `train.py` for this model, without a logger."""
    return to_plain(_composed(model))


def tiny(model: str = "decoder", **changes: Any) -> dict[str, Any]:
    """Returns a tiny config of a model. `changes`: nodes or names of components (attn=...),
    differences of the `encoder` or the `decoder`, and values of `model`.
    """
    config = default_config(model)
    for kind in KINDS:
        config[kind] = sized(kind, changes.pop(kind, config[kind]["name"]))
    config["extra"] = complete_mapping(EXTRAS, changes.pop("extra", {}))
    config["data"] |= {"seq_len": LENGTH, "batch_size": BATCH}
    for stack in ("encoder", "decoder"):  # merged with the choice of stacks, as on a command line
        if stack in changes:
            changes[stack] = {**config["model"].get(stack, {}), **changes[stack]}
    config["model"] |= {
        "dim": DIM,
        "layers": LAYERS,
        "vocab_multiple": 8,
        "max_len": MAX_LEN,
        **changes,
    }
    return to_plain(config)


def sized(kind: str, node: Node | str) -> dict[str, Any]:
    """Returns the complete node of a component, with tiny sizes for options it does not set."""
    node, registry = as_node(node), KINDS[kind]
    options = registry.options(node["name"])
    small = {key: value for key, value in SIZES.items() if key in options}
    return registry.defaults(node["name"]) | small | dict(node)


def faults(config: Node) -> list[Fault]:
    """Returns why the composition is refused for any data and objective, and on a CPU, where laws
    train it; empty if it is accepted.
    """
    return check(config, data=False, task=False) or list(untrained_on("cpu", config))


def with_model(config: Node, **options: Any) -> dict[str, Any]:
    """Returns the config with other values of `model`."""
    return {**config, "model": {**config["model"], **options}}


class NotApplicable(Exception):  # noqa: N818  (not an error)
    """Raised if a law does not apply to a composition; the message is the reason."""


class LawBroken(AssertionError):  # noqa: N818  (the name states what happened)
    """Raised if a composition breaks a law. The message contains the law, the numbers, and the
    overrides that reproduce it.
    """

    def __init__(self, law: str, what: str, config: Node):
        self.law = law
        self.what = what
        super().__init__(
            f"the law '{law}' is broken: {what}. Seen with: {' '.join(overrides(config))}"
        )


class Composition:
    """One composition under a law: its models, its tokens and the traits of its components."""

    # The config that was checked last, and the values that its laws share.
    _last: ClassVar[tuple[Node, dict[str, Any]]] = {}, {}

    def __init__(self, config: Node, law: str, under: tuple[str, ...] = ()):
        self.config = config
        self.law = law
        self.under = under

    def broken(self, what: str) -> LawBroken:
        return LawBroken(self.law, what, self.config)

    def same(self, got: Tensor, expected: Tensor, what: str, tolerance: float = 1e-9) -> None:
        """Raises LawBroken if the two differ by more than `tolerance` x the largest value
        expected (at least 1).
        """
        bound = tolerance * max(1.0, expected.abs().max().item()) if expected.numel() else 0.0
        gap = (got - expected).abs().max().item() if expected.numel() else 0.0
        if not gap <= bound:
            raise self.broken(f"{what}: the gap is {gap:.2e}, allowed is {bound:.2e}")

    def model(self, dtype: torch.dtype = torch.float64, draw: int = 1, **changes: Any) -> Model:
        """Returns a model in evaluation mode, with random weights of seed `draw`; `changes` replace
        components of the config.
        """
        config = {**self.config, **changes}
        if draw > 1:  # the initial values of the first seed may be extreme
            config = with_model(config, seed=config["seed"] + draw - 1)
        model = made(config)
        randomise(model, draw)
        return model.to(dtype).eval()

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Returns the value of `make`, computed once for consecutive laws of the same config."""
        if Composition._last[0] is not self.config:
            Composition._last = self.config, {}
        kept = Composition._last[1]
        return kept[name] if name in kept else kept.setdefault(name, make())

    @property
    def read_only(self) -> Model:
        """Returns `model()` for laws that write nothing but gradients. They share one model,
        because building a model of this size takes longer than running it.
        """
        return self.shared("model", self.model)

    @property
    def with_gradients(self) -> Model:
        """The same on a kernel that computes gradients on a CPU."""
        return self.learning() if any(untrained_on("cpu", self.config)) else self.read_only

    def learning(self, draw: int = 1, kernel: str | None = None) -> Model:
        """Returns a new model with random weights of seed `draw`, with this kernel or one that
        computes gradients on a CPU, where laws run.
        """
        changes: dict[str, Any] = {}
        if kernel or any(untrained_on("cpu", self.config)):
            stacks = {name: _without_kernels(self.config["model"][name]) for name in self.stacks}
            changes = {
                "kernel": sized("kernel", kernel or "auto"),
                "model": {**self.config["model"], **stacks},
            }
        return self.model(draw=draw, **changes)

    @cached_property
    def _drawn(self) -> Tensor:
        draw = torch.Generator().manual_seed(5)
        return torch.stack([torch.randperm(VOCAB, generator=draw) for _ in range(BATCH)])

    @property
    def ids(self) -> Tensor:
        """(batch, length) of token ids, all different within a row."""
        return self._drawn[:, :LENGTH]

    @property
    def source(self) -> Tensor | None:
        """(batch, SOURCE) of token ids, all different from each other and from the row's `ids`;
        None for one stack.
        """
        return self._drawn[:, LENGTH : LENGTH + SOURCE] if len(self.stacks) > 1 else None

    @cached_property
    def stacks(self) -> list[str]:
        return [plan.name for plan in stacks(self.config)]

    def read(
        self, model: Model, ids: Tensor, source: Tokens | Encoded | None = None, **fields: Any
    ) -> Tensor:
        """Returns the input of the head, (b, t, dim), or with `further` (1 + n, b, t, dim), also
        for the predictions of extras. An encoder reads `source`, or the first row of `self.source`
        for every row.
        """
        cache, further = fields.pop("cache", None), fields.pop("further", False)
        if source is None and self.source is not None:
            source = Tokens(ids=self.source[:1].expand(len(ids), -1))
        return model.hidden(Tokens(ids=ids, **fields), cache, source, further)[0]

    def logits(
        self, model: Model, ids: Tensor, source: Tokens | Encoded | None = None, **fields: Any
    ) -> Tensor:
        """Returns the output of the head, (b, t, vocab)."""
        return model.head(self.read(model, ids, source, **fields))

    def predicted(
        self, model: Model, ids: Tensor, source: Tokens | Encoded | None = None, **fields: Any
    ) -> Tensor:
        """Returns the logits of all tokens that each token predicts in training, (b, t,
        (1 + n) * vocab).
        """
        return self.logits(model, ids, source, further=True, **fields).movedim(0, -2).flatten(-2)

    def past(self, model: Model, rows: int = BATCH) -> GenerationCache:
        """Returns an empty cache for `ids` and `source`."""
        return model.cache(rows, LENGTH, 0 if self.source is None else SOURCE)

    @cached_property
    def looks(self) -> list[Context]:
        """Returns the context of each attention."""
        return [
            sub.context
            for plan in stacks(self.config)
            for block in plan.variants.values()
            for sub in block.sublayers
            if sub.kind == "attn"
        ]

    @property
    def own(self) -> list[Context]:
        """Returns the contexts of the self-attentions of the output stack."""
        return [look for look in self.looks if look.stack == self.stacks[-1] and not look.cross]

    @property
    def crosses(self) -> list[Context]:
        """Returns the contexts of the cross attentions."""
        return [look for look in self.looks if look.cross]

    @property
    def sees_future(self) -> bool:
        return any(context.mask.sees_future for context in self.own)

    def needs_past(self) -> None:
        """Raises NotApplicable if a token may attend to later ones."""
        if self.sees_future:
            raise NotApplicable("a mask sees the future")

    def needed_source(self) -> Tensor:
        """Returns the source. Raises NotApplicable for one stack."""
        if self.source is None:
            raise NotApplicable("no source")
        return self.source

    def needs_no_order(self, stack: str) -> None:
        """Raises NotApplicable if a stack depends on the order of its tokens: by a position, by an
        extra, or by a mask that is not full, in self-attention or in cross attention.
        """
        # A position may be embedded although no attention uses it.
        base = stack_plan(self.config, stack).base.nodes["position"]["name"]
        ordered = self.mixes or "embed" in POSITIONS[base].enters
        for look in self.looks:
            if look.stack == stack or look.cross:
                ordered |= bool(look.position.enters) or look.mask.band != (math.inf, math.inf)
        if ordered:
            raise NotApplicable("there is an order: a position, or a mask that is not full")

    @property
    def mixes(self) -> bool:
        """Whether an extra mixes earlier tokens into a token."""
        return any(EXTRAS[name].overrides("caches") for name in self.config.get("extra") or ())

    @cached_property
    def breaks(self) -> dict[str, str]:
        """Law -> the component that declares to break it, and why."""
        *others, speaks = (plan.breaks for plan in stacks(self.config))
        found = {
            law: reason
            for broken in others
            for law, reason in broken.items()
            if law not in OUTPUT_LAWS
        }
        return {**found, **speaks}

    def exempt(self) -> str | None:
        """Returns why a component is allowed to break the law, or None."""
        return next(
            (self.breaks[law] for law in (self.law, *self.under) if law in self.breaks), None
        )


@torch.no_grad()
def randomise(model: nn.Module, seed: int = 1) -> None:
    """Changes every parameter randomly, as a function of only the seed, its name and its shape.
    Matrices have the usual size with seed 1, are larger with 2 and smaller with 3. Factors keep
    their sign and stay away from 0, since a factor near 0 on the stream would hide all that
    follows.
    """
    for name, parameter in model.named_parameters():
        draw = torch.randn(parameter.shape, generator=generator(seed, name))
        if parameter.ndim < 2:
            factor, shift = (0.3 * draw).exp().to(parameter.dtype), 0.3 * draw.to(parameter.dtype)
            parameter.copy_(torch.where(parameter == 0, shift, parameter * factor))
        else:
            wide = (
                0.3 if name.split(".")[0].endswith("embed") else 0.7 * parameter.shape[-1] ** -0.5
            )
            parameter.copy_(draw * wide * SIZE_OF[seed])


def made(config: Node) -> Model:
    """Builds the model of a config; a source with its own embeddings has its own vocabulary."""
    two = len(stacks(config)) > 1
    return build_model(
        config, VOCAB, SOURCE_VOCAB if two and not config["model"]["share_embeddings"] else None
    )


def _without_kernels(stack: Node | None) -> dict[str, Any]:
    """Returns the differences of a stack without its kernels."""
    kept = {key: value for key, value in (stack or {}).items() if key != "kernel"}
    variants = {
        name: _without_kernels(differences)
        for name, differences in (kept.get("variants") or {}).items()
    }
    return kept | {"variants": variants} if variants else kept


def overrides(config: Node) -> list[str]:
    """Returns the overrides of the model's default config that compose this config."""
    name = "_".join(plan.name for plan in stacks(config))
    words, base = [*MODELS[name]], default_config(name)
    for key, value in config.items():
        usual = base.get(key)
        if key in ("name", "logger", "task") or value == usual:
            continue
        if not isinstance(value, Mapping):
            words.append(f"{key}={value_text(value)}")
            continue
        if key in KINDS and value["name"] != usual["name"]:
            words.append(f"{key}={value['name']}")
            usual = KINDS[key].defaults(value["name"])
        words += [
            f"{key}.{option}={value_text(v)}"
            for option, v in value.items()
            if usual.get(option, ...) != v
        ]
    return words
