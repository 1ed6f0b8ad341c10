"""What is a law tried on? A tiny composition in which nothing can hide.

Sizes differ from axis to axis, so that no two can be swapped unseen, and every parameter is
randomised (biases, weights of norms and scales too), so that one that is left out is seen. Laws run
in float64 where they do not say otherwise.
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
from xformer_kit.registry import Context, Fault, Node, complete_many
from xformer_kit.registry import plain as copied

VOCAB, BATCH, LENGTH, DIM, LAYERS, MAX_LEN = 37, 3, 13, 36, 2, 29
SIZE_OF = {1: 1.0, 2: 4.0, 3: 0.25}  # draw of the weights -> factor of matrices
SOURCE, SOURCE_VOCAB = 11, 41  # tokens of a source; its vocabulary, if its embeddings are its own
# Values of options that have these names.
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


# The stacks that there are, each with the words that choose it and a task that trains it.
MODELS: dict[str, tuple[str, ...]] = {
    "decoder": (),
    "encoder": ("model=encoder", "task=masked_language_modeling"),
    "encoder_decoder": ("model=encoder_decoder", "task=seq2seq"),
}


@cache
def _composed(model: str) -> dict[str, Any]:
    return compose(["logger=none", *MODELS[model]])


def plain(model: str = "decoder") -> dict[str, Any]:
    """What `train.py` composes for these stacks without further overrides, but for the logger."""
    return copied(_composed(model))


def tiny(model: str = "decoder", **changes: Any) -> dict[str, Any]:
    """A tiny config of the stacks that are named: `changes` are nodes or names of components
    (attn=...), differences of the `encoder` or the `decoder`, and values of `model`.
    """
    config = plain(model)
    for kind in KINDS:
        config[kind] = sized(kind, changes.pop(kind, config[kind]["name"]))
    config["extra"] = complete_many(EXTRAS, changes.pop("extra", {}))
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
    return copied(config)


def sized(kind: str, node: Node | str) -> dict[str, Any]:
    """A complete node of a component, tiny where the difference does not say otherwise."""
    node, registry = as_node(node), KINDS[kind]
    options = registry.options(node["name"])
    small = {key: value for key, value in SIZES.items() if key in options}
    return registry.defaults(node["name"]) | small | dict(node)


def faults(config: Node) -> list[Fault]:
    """Why the composition is refused, whatever it is trained on; empty where it is not. Laws train
    it on a CPU.
    """
    return check(config, data=False, task=False) or list(untrained_on("cpu", config))


def with_model(config: Node, **options: Any) -> dict[str, Any]:
    """The config with other options of the model as a whole."""
    return {**config, "model": {**config["model"], **options}}


class NotApplicable(Exception):  # noqa: N818  (it is no error)
    """There is nothing that a law is about in a composition; the text is why."""


class LawBroken(AssertionError):  # noqa: N818  (the name that reads as what happened)
    """A composition that breaks a law. The message has the law, the numbers, and the overrides that
    reproduce it.
    """

    def __init__(self, law: str, what: str, config: Node):
        self.law = law
        self.what = what
        super().__init__(
            f"the law '{law}' is broken: {what}. Seen with: {' '.join(overrides(config))}"
        )


class Composition:
    """One composition, with models, tokens and what its components say of themselves."""

    # The config that was judged last, and what its laws share.
    _last: ClassVar[tuple[Node, dict[str, Any]]] = {}, {}

    def __init__(self, config: Node, law: str, under: tuple[str, ...] = ()):
        self.config = config
        self.law = law
        self.under = under

    def broken(self, what: str) -> LawBroken:
        return LawBroken(self.law, what, self.config)

    def same(self, got: Tensor, expected: Tensor, what: str, tolerance: float = 1e-9) -> None:
        """Raises LawBroken where the two differ by more than `tolerance` x the largest value
        expected (at least 1).
        """
        bound = tolerance * max(1.0, expected.abs().max().item()) if expected.numel() else 0.0
        gap = (got - expected).abs().max().item() if expected.numel() else 0.0
        if not gap <= bound:
            raise self.broken(f"{what}: the gap is {gap:.2e}, allowed is {bound:.2e}")

    def model(self, dtype: torch.dtype = torch.float64, draw: int = 1, **changes: Any) -> Model:
        """A model in evaluation mode, with the weights of that draw; `changes` replace components
        of the config.
        """
        config = {**self.config, **changes}
        if draw > 1:  # what a component draws for its start may be extreme in the first draw
            config = with_model(config, seed=config["seed"] + draw - 1)
        model = made(config)
        randomise(model, draw)
        return model.to(dtype).eval()

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once for all laws of a config that is judged by one after
        another.
        """
        if Composition._last[0] is not self.config:
            Composition._last = self.config, {}
        kept = Composition._last[1]
        return kept[name] if name in kept else kept.setdefault(name, make())

    @property
    def read_only(self) -> Model:
        """`model()` for a law that computes with it and writes nothing but gradients: one for all
        such laws of a config, for to make a model of this size takes longer than to run it.
        """
        return self.shared("model", self.model)

    @property
    def with_gradients(self) -> Model:
        """The same on a kernel that computes gradients on a CPU."""
        return self.learning() if any(untrained_on("cpu", self.config)) else self.read_only

    def learning(self, draw: int = 1, kernel: str | None = None) -> Model:
        """A model of its own, with the weights of that draw, on this kernel or else on one that
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
        """What the head reads, (b, t, dim), or with `further` (1 + n, b, t, dim), also for what
        extras predict.
        Two stacks read `source`, or else every row the first of `self.source`.
        """
        cache, further = fields.pop("cache", None), fields.pop("further", False)
        if source is None and self.source is not None:
            source = Tokens(ids=self.source[:1].expand(len(ids), -1))
        return model.hidden(Tokens(ids=ids, **fields), cache, source, further)[0]

    def logits(
        self, model: Model, ids: Tensor, source: Tokens | Encoded | None = None, **fields: Any
    ) -> Tensor:
        """The same behind the head, (b, t, vocab)."""
        return model.head(self.read(model, ids, source, **fields))

    def predicted(
        self, model: Model, ids: Tensor, source: Tokens | Encoded | None = None, **fields: Any
    ) -> Tensor:
        """The same for all tokens that the model predicts at each place in training, (b, t,
        (1 + n) * vocab).
        """
        return self.logits(model, ids, source, further=True, **fields).movedim(0, -2).flatten(-2)

    def past(self, model: Model, rows: int = BATCH) -> GenerationCache:
        """An empty cache for `ids` beside `source`."""
        return model.cache(rows, LENGTH, 0 if self.source is None else SOURCE)

    @cached_property
    def looks(self) -> list[Context]:
        """What each attention meets."""
        return [
            sub.context
            for plan in stacks(self.config)
            for block in plan.variants.values()
            for sub in block.sublayers
            if sub.kind == "attn"
        ]

    @property
    def own(self) -> list[Context]:
        """What each attention of the stack that speaks meets, which looks at that stack."""
        return [look for look in self.looks if look.stack == self.stacks[-1] and not look.cross]

    @property
    def crosses(self) -> list[Context]:
        """What each attention to the other stack meets."""
        return [look for look in self.looks if look.cross]

    @property
    def sees_future(self) -> bool:
        return any(context.mask.sees_future for context in self.own)

    def needs_past(self) -> None:
        """Raises NotApplicable if a token may see later ones."""
        if self.sees_future:
            raise NotApplicable("a mask sees the future")

    def needed_source(self) -> Tensor:
        """The source. Raises NotApplicable for one stack."""
        if self.source is None:
            raise NotApplicable("no source")
        return self.source

    def needs_no_order(self, stack: str) -> None:
        """Raises NotApplicable if a stack's tokens have an order: by a position, by a shift, or by
        a mask that does not show all, of its attentions or of those to the other stack.
        """
        # Also if no attention of the stack's own attends through it.
        base = stack_plan(self.config, stack).base.nodes["position"]["name"]
        ordered = self.mixes or "embed" in POSITIONS[base].enters
        for look in self.looks:
            if look.stack == stack or look.cross:
                ordered |= bool(look.position.enters) or look.mask.band != (math.inf, math.inf)
        if ordered:
            raise NotApplicable("there is an order: a position, or a mask that is not full")

    @property
    def mixes(self) -> bool:
        """Whether an extra gives a token something of earlier tokens."""
        return any(EXTRAS[name].overrides("caches") for name in self.config.get("extra") or ())

    @cached_property
    def breaks(self) -> dict[str, str]:
        """Law -> which component says that it breaks it, and why."""
        *others, speaks = (plan.breaks for plan in stacks(self.config))
        found = {
            law: reason
            for broken in others
            for law, reason in broken.items()
            if law not in OUTPUT_LAWS
        }
        return {**found, **speaks}

    def exempt(self) -> str | None:
        """Why a component is allowed to break the law, where one is."""
        return next(
            (self.breaks[law] for law in (self.law, *self.under) if law in self.breaks), None
        )


@torch.no_grad()
def randomise(model: nn.Module, seed: int = 1) -> None:
    """Every parameter moved away from its start by a draw that depends on the seed, its name and
    its shape alone; matrices are of the usual size with seed 1, larger with 2, smaller with 3.
    Factors keep their sign, and do not come near 0, where one of a whole stream would silence what
    is behind it.
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
    """The model of a config; a source that has its own embeddings has its own vocabulary."""
    two = len(stacks(config)) > 1
    return build_model(
        config, VOCAB, SOURCE_VOCAB if two and not config["model"]["share_embeddings"] else None
    )


def _without_kernels(stack: Node | None) -> dict[str, Any]:
    """The differences of a stack but for its kernels."""
    kept = {key: value for key, value in (stack or {}).items() if key != "kernel"}
    variants = {
        name: _without_kernels(differences)
        for name, differences in (kept.get("variants") or {}).items()
    }
    return kept | {"variants": variants} if variants else kept


def overrides(config: Node) -> list[str]:
    """The command line that composes a config, as far as it differs from the plain one of its
    stacks.
    """
    name = "_".join(plan.name for plan in stacks(config))
    words, base = [*MODELS[name]], plain(name)
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
