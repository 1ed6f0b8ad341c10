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
from xformer_kit.config.faults.machine import kernel_device_faults
from xformer_kit.config.line.overrides import value_text
from xformer_kit.extra import EXTRAS
from xformer_kit.laws.sizes import sizes
from xformer_kit.model.build import Part, build_model
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.initial_weights import generator
from xformer_kit.model.model import Encoded, Model
from xformer_kit.plan import KINDS, OUTPUT_LAWS, as_node, stack_plan, stacks
from xformer_kit.position import POSITIONS
from xformer_kit.registry import Context, Fault, Node, complete_mapping, to_plain
from xformer_kit.tensors.tokens import Tokens

VOCAB, BATCH, LENGTH, DIM, LAYERS, MAX_LEN = 37, 3, 13, 36, 2, 29
WEIGHT_SCALES = {1: 1.0, 2: 4.0, 3: 0.25}  # seed of the weights -> factor of matrices
SOURCE, SOURCE_VOCAB = 11, 41  # tokens of a source; its vocabulary, if its embeddings are its own
T = TypeVar("T")


# Model -> overrides that choose it and a task that trains it.
MODELS: dict[str, tuple[str, ...]] = {
    "decoder": (),
    "encoder": ("model=encoder", "task=masked_language_modeling"),
    "encoder_decoder": ("model=encoder_decoder", "task=seq2seq"),
}


@cache
def _default_config(model: str) -> dict[str, Any]:
    return compose(["logger=none", *MODELS[model]])


def default_config(model: str = "decoder") -> dict[str, Any]:
    """Returns the default config of `train.py` for this model, without a logger."""
    return to_plain(_default_config(model))


def tiny_config(model: str = "decoder", **changes: Any) -> dict[str, Any]:
    """Returns a tiny config of a model. `changes`: nodes or names of components (attn=...),
    differences of the `encoder` or the `decoder`, and values of `model`.
    """
    config = dict(_default_config(model))
    for kind in KINDS:
        config[kind] = tiny_node(kind, changes.pop(kind, config[kind]["name"]))
    config["extra"] = complete_mapping(EXTRAS, changes.pop("extra", {}))
    config["data"] = config["data"] | {"seq_len": LENGTH, "batch_size": BATCH}
    for stack in ("encoder", "decoder"):  # merged with the choice of stacks, as on a command line
        if stack in changes:
            changes[stack] = {**config["model"].get(stack, {}), **changes[stack]}
    tiny = {"dim": DIM, "layers": LAYERS, "vocab_multiple": 8, "max_len": MAX_LEN}
    config["model"] = config["model"] | tiny | changes
    return to_plain(config)


def tiny_node(kind: str, node: Node | str) -> dict[str, Any]:
    """Returns the complete node of a component, with tiny sizes for options it does not set, if it
    is one of the package.
    """
    node = as_node(node)
    name = node["name"]
    return KINDS[kind].defaults(name) | sizes(kind, name) | dict(node)


def faults(config: Node) -> list[Fault]:
    """Returns why the composition is refused for any data and objective, and on a CPU, where laws
    train it; empty if it is accepted.
    """
    return check(config, data=False, task=False) or list(kernel_device_faults("cpu", config))


def with_model_options(config: Node, **options: Any) -> dict[str, Any]:
    """Returns the config with other values of `model`."""
    return {**config, "model": {**config["model"], **options}}


class NotApplicable(Exception):  # noqa: N818  (not an error)
    """Raised if a law does not apply to a composition; the message is the reason."""


class LawBroken(AssertionError):  # noqa: N818  (the name states what happened)
    """Raised if a composition breaks a law. The text contains the law, the message with the
    numbers, and the overrides that reproduce it.
    """

    def __init__(self, law: str, message: str, config: Node):
        self.law = law
        self.message = message
        super().__init__(
            f"the law '{law}' is broken: {message}. Seen with: {' '.join(overrides(config))}"
        )


class Composition:
    """One composition for which one law is checked: its models, its tokens and the traits of its
    components.
    """

    # The config that was checked last, and the values that laws compute once for it.
    _last: ClassVar[tuple[Node, dict[str, Any]]] = {}, {}

    def __init__(self, config: Node, law: str):
        self.config = config
        self.law = law

    def broken(self, message: str) -> LawBroken:
        """Returns the exception that states how this composition breaks the law."""
        return LawBroken(self.law, message, self.config)

    def assert_close(
        self, got: Tensor, expected: Tensor, message: str, tolerance: float = 1e-9
    ) -> None:
        """Raises LawBroken if the two differ by more than `tolerance` x the largest value
        expected (at least 1).
        """
        if not expected.numel():
            return
        bound = tolerance * max(1.0, expected.abs().max().item())
        gap = (got - expected).abs().max().item()
        if not gap <= bound:
            raise self.broken(f"{message}: the gap is {gap:.2e}, allowed is {bound:.2e}")

    def model(
        self, dtype: torch.dtype = torch.float64, weight_seed: int = 1, **changes: Any
    ) -> Model:
        """Returns a model in evaluation mode, with random weights of seed `weight_seed`; `changes`
        replace components of the config.
        """
        config = {**self.config, **changes}
        if weight_seed > 1:  # the initial values of the first seed may be extreme
            config = with_model_options(config, seed=config["seed"] + weight_seed - 1)
        model = build_tiny_model(config)
        randomise(model, weight_seed)
        return model.to(dtype).eval()

    def compute_once(self, name: str, compute: Callable[[], T]) -> T:
        """Returns the value of `compute`, computed once for consecutive laws of the same config."""
        if Composition._last[0] is not self.config:
            Composition._last = self.config, {}
        values = Composition._last[1]
        return values[name] if name in values else values.setdefault(name, compute())

    @property
    def shared_model(self) -> Model:
        """Returns `model()` for laws that write nothing but gradients. They share one model,
        because building a model of this size takes longer than running it.
        """
        return self.compute_once("model", self.model)

    @property
    def model_with_gradients(self) -> Model:
        """Returns `shared_model`, or a new model with other kernels if its kernels compute no
        gradients on a CPU.
        """
        return (
            self.trainable_model()
            if any(kernel_device_faults("cpu", self.config))
            else self.shared_model
        )

    def trainable_model(self, weight_seed: int = 1, kernel: str | None = None) -> Model:
        """Returns a new model with random weights of seed `weight_seed`, with this kernel or one
        that computes gradients on a CPU, where laws run.
        """
        changes: dict[str, Any] = {}
        if kernel or any(kernel_device_faults("cpu", self.config)):
            options = self.config["model"]
            stacks = {name: _without_kernels(options[name]) for name in self.stacks}
            changes = {"kernel": tiny_node("kernel", kernel or "auto"), "model": options | stacks}
        return self.model(weight_seed=weight_seed, **changes)

    @cached_property
    def _random_ids(self) -> Tensor:
        draw = torch.Generator().manual_seed(5)
        return torch.stack([torch.randperm(VOCAB, generator=draw) for _ in range(BATCH)])

    @property
    def ids(self) -> Tensor:
        """(batch, length) of token ids, all different within a row."""
        return self._random_ids[:, :LENGTH]

    @property
    def longest_ids(self) -> Tensor:
        """(batch, MAX_LEN) of token ids, which begin with `ids`."""
        return self._random_ids[:, :MAX_LEN]

    @property
    def source(self) -> Tensor | None:
        """(batch, SOURCE) of token ids, all different from each other and from the row's `ids`;
        None for one stack.
        """
        return self._random_ids[:, LENGTH : LENGTH + SOURCE] if len(self.stacks) > 1 else None

    @cached_property
    def stacks(self) -> list[str]:
        """Names of the stacks, the output stack last."""
        return [plan.name for plan in stacks(self.config)]

    def hidden(
        self,
        model: Model,
        ids: Tensor | None = None,
        source: Tokens | Encoded | None = None,
        cache: GenerationCache | None = None,
        multi_token: bool = False,
        **fields: Any,
    ) -> Tensor:
        """Returns the input of the head for `ids` or `self.ids`, (b, t, dim), or with `multi_token`
        (1 + n, b, t, dim), also for the predictions of extras. An encoder reads `source`, or the
        first row of `self.source` for every row. `fields`: further fields of the tokens.
        """
        ids = self.ids if ids is None else ids
        if source is None and self.source is not None:
            source = Tokens(ids=self.source[:1].expand(len(ids), -1))
        return model.hidden(Tokens(ids=ids, **fields), cache, source, multi_token)[0]

    def logits(self, model: Model, *args: Any, **kwargs: Any) -> Tensor:
        """Returns the output of the head, (b, t, vocab); arguments as in `hidden`."""
        return model.head(self.hidden(model, *args, **kwargs))

    def all_logits(self, model: Model, *args: Any, **kwargs: Any) -> Tensor:
        """Returns the logits of all tokens that each token predicts in training, (b, t,
        (1 + n) * vocab); arguments as in `hidden`.
        """
        return self.logits(model, *args, multi_token=True, **kwargs).movedim(0, -2).flatten(-2)

    def empty_cache(self, model: Model) -> GenerationCache:
        """Returns an empty cache for `ids` and `source`."""
        return model.cache(BATCH, LENGTH, 0 if self.source is None else SOURCE)

    @cached_property
    def attention_contexts(self) -> list[Context]:
        """The context of each attention in the plan."""
        return [
            sub.context
            for plan in stacks(self.config)
            for block in plan.variants.values()
            for sub in block.sublayers
            if sub.kind == "attn"
        ]

    @property
    def self_attentions(self) -> list[Context]:
        """The contexts of the self-attentions of the output stack."""
        output = self.stacks[-1]
        return [one for one in self.attention_contexts if one.stack == output and not one.cross]

    @property
    def sees_future(self) -> bool:
        """Whether a token of the output stack may attend to later ones."""
        return any(context.mask.sees_future for context in self.self_attentions)

    def require_causal(self) -> None:
        """Raises NotApplicable if a token may attend to later ones."""
        if self.sees_future:
            raise NotApplicable("a mask sees the future")

    def require_source(self) -> Tensor:
        """Returns the source. Raises NotApplicable for one stack."""
        if self.source is None:
            raise NotApplicable("no source")
        return self.source

    def require_no_order(self, stack: str) -> None:
        """Raises NotApplicable if a stack depends on the order of its tokens: by a position, by an
        extra, or by a mask that is not full, in self-attention or in cross attention.
        """
        # A position may be embedded although no attention uses it.
        base = stack_plan(self.config, stack).base.nodes["position"]["name"]
        if (
            self.extras_mix_tokens
            or "embed" in POSITIONS[base].enters
            or any(
                context.position.enters or context.mask.band != (math.inf, math.inf)
                for context in self.attention_contexts
                if context.stack == stack or context.cross
            )
        ):
            raise NotApplicable("there is an order: a position, or a mask that is not full")

    @property
    def extras_mix_tokens(self) -> bool:
        """Whether an extra mixes earlier tokens into a token."""
        return any(EXTRAS[name].overrides("caches") for name in self.config.get("extra") or ())

    @cached_property
    def broken_laws(self) -> dict[str, str]:
        """Law -> the component that declares to break it, and why. Laws of the output apply only to
        the output stack.
        """
        *inputs, output = (plan.breaks.items() for plan in stacks(self.config))
        of_inputs = (item for plan in inputs for item in plan if item[0] not in OUTPUT_LAWS)
        return dict([*of_inputs, *output])


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
            embedding = name in ("embed.weight", "source_embed.weight")
            std = 0.3 if embedding else 0.7 * parameter.shape[-1] ** -0.5
            parameter.copy_(draw * std * WEIGHT_SCALES[seed])


def build_tiny_model(config: Node, part: Part | None = None) -> Model:
    """Builds the model of a config, or a part of it, with VOCAB tokens, and SOURCE_VOCAB tokens for
    a source with its own embeddings.
    """
    own_source = len(stacks(config)) > 1 and not config["model"]["share_embeddings"]
    return build_model(config, VOCAB, SOURCE_VOCAB if own_source else None, part=part)


def _without_kernels(stack: Node | None) -> dict[str, Any]:
    """Returns a stack's own options, such as model.encoder, without the key `kernel`, also in its
    variants; {} for None.
    """
    kept = {key: value for key, value in (stack or {}).items() if key != "kernel"}
    if variants := kept.get("variants"):
        kept["variants"] = {name: _without_kernels(variants[name]) for name in variants}
    return kept


def overrides(config: Node) -> list[str]:
    """Returns the overrides of the model's default config that compose this config."""
    model = "_".join(plan.name for plan in stacks(config))
    words, base = [*MODELS[model]], default_config(model)
    for key, value in config.items():
        default = base.get(key)
        if key in ("name", "logger", "task") or value == default:
            continue
        if not isinstance(value, Mapping):
            words.append(f"{key}={value_text(value)}")
            continue
        if key in KINDS and value["name"] != default["name"]:
            words.append(f"{key}={value['name']}")
            default = KINDS[key].defaults(value["name"])
        words += [
            f"{key}.{option}={value_text(v)}"
            for option, v in value.items()
            if default.get(option, ...) != v
        ]
    return words
