"""The settings of a config: options that belong to no component, such as model.dim, data.batch_size
and ema.decay, with their defaults. Hydra composes the defaults as the config `settings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from xformer_kit.ffn.activations import Activation
from xformer_kit.metrics import VAL_LOSS, metric_option_faults
from xformer_kit.plan import STACKS, loop_range
from xformer_kit.registry import (
    Fault,
    Faults,
    Node,
    Registry,
    above,
    at_least,
    at_most,
    format_value,
    in_range,
    not_empty,
)

MAX_LOOPS = 1_000  # times that a stack is repeated
MAX_BLOCKS = (
    10_000  # blocks of a stack: each is an object in memory before anything has been counted
)
SETTINGS = Registry("settings")


@SETTINGS.register("run")
@dataclass(frozen=True)
class TopLevelSettings:
    """Settings at the top of the config, in no node: the option is `seed`, not `run.seed`."""

    # of the initial weights, the order of the data and all random numbers of a run; model.seed and
    # data.seed replace it for the weights and for the data
    seed: int = 0

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, seed=0)
        yield from at_most(options, seed=2**63 - 1)


@SETTINGS.register("model")
@dataclass(frozen=True)
class ModelSettings:
    """The model as a whole; its stacks hold differences from the shared components."""

    dim: int = 128  # channels of the residual stream
    layers: int = 4  # blocks of a stack
    # blocks with weights of their own, fewer than layers where some share; null is layers
    unique_layers: int | None = None
    sharing: Literal[
        "sequence",
        "cycle",
        "cycle_rev",
        # blocks of a stack in the order of its layers: AABB (ALBERT), ABAB (Universal Transformer)
        # or ABBA (Takase and Kiyono, arXiv:2104.06022)
    ] = "sequence"
    loops: int = 1  # times that the layers of a stack are applied, one time after another
    # loops in training: a number, or the least and the most, between which each forward pass draws
    # one; null is loops
    train_loops: tuple[int, int] | int | None = None
    # probability, on embeddings and on what sublayers add to the residual stream
    dropout: float = 0.0
    # how initial weights, rates and factors depend on dim: mup keeps the best rate of base_dim
    # (Yang et al., 2022, arXiv:2203.03466)
    parametrization: Literal["standard", "mup"] = "standard"
    base_dim: int | None = None  # dim at which mup is standard and rates are chosen
    # factor of what sublayers add to the residual stream (Granite)
    residual_multiplier: float = 1.0
    vocab_size: int | None = None  # tokens; null is the tokenizer's
    # rows of the embedding are rounded up to it; the padding has no logits
    vocab_multiple: int = 64
    # whether the head is the embedding, transposed (Press and Wolf, 2017, arXiv:1608.05859)
    tie_embeddings: bool = True
    # whether source and target are embedded by one matrix, in a model of two stacks
    share_embeddings: bool = True
    # factor of the token embeddings, not of the head; sqrt_dim is the root of dim (Vaswani et al.,
    # 2017, arXiv:1706.03762, section 3.4)
    embed_scale: float | Literal["sqrt_dim"] = 1.0
    # channels of the embeddings and of sqrt_dim; a map leads to dim (ALBERT); null is dim
    embed_dim: int | None = None
    # whether that map comes before positions and the norm of embeddings, and then without a bias,
    # which positions contain (OPT-350m)
    embed_map_first: bool = False
    embed_norm: bool = False  # norm after the embeddings, before the first block (BERT, BART)
    token_types: int = 0  # kinds of segments with an embedding each (BERT); 0: none
    # dense, an activation and a norm before the head (BERT's masked-token head)
    head_transform: bool = False
    head_activation: Activation = "gelu"  # of head_transform
    head_transform_bias: bool = True  # whether the dense map of head_transform has a bias
    # whether every logit has a bias; fixed: one that is not trained, 0 if no file has it (BART)
    head_bias: bool | Literal["fixed"] = False
    # factor of the logits (Cohere; Granite divides: 1 / its logits_scaling), or one that each token
    # learns (nGPT); per_root_dim is dim^-0.5 (T5)
    logit_scale: float | Literal["learned", "per_root_dim"] = 1.0
    # c: logits become c tanh(logits / c) (Gemma 2, arXiv:2408.00118, section 2)
    logit_softcap: float | None = None
    max_len: int | None = None  # tokens; null is data.seq_len
    final_norm: bool | None = None  # norm after the last block; null is the placement's own choice
    seed: int | None = None  # of the initial weights; null is seed
    # parameters that are not trained: patterns of their names or modules, decoder.0, *.norm.*
    freeze: list[str] | None = None
    unfreeze_at: int | None = None  # optimizer step from which they are trained; null is never
    # blocks whose activations the backward pass computes again, which takes memory for time: block
    # (all), selective (all, but not the outputs of matrix products), or n: every n-th block
    checkpoint_activations: Literal["none", "block", "selective"] | int = "none"
    encoder: dict | None = (
        None  # stack that reads a whole text: differences from the shared components
    )
    decoder: dict | None = (
        None  # stack that reads left to right: differences from the shared components
    )

    @classmethod
    def check(cls, options, context):
        yield from at_least(
            options, dim=1, layers=1, vocab_size=1, vocab_multiple=1, max_len=1, seed=0
        )
        yield from at_least(options, "step", unfreeze_at=1)
        if (options.unfreeze_at or 0) >= 1 and not options.freeze:
            rule = "is about the parameters of model.freeze, which has none"
            fix = "Set model.freeze (not with lora.rank), or leave it out."
            yield Fault("unfreeze_at", rule, options.unfreeze_at, fix)
        yield from at_most(options, "blocks", layers=MAX_BLOCKS)
        if not isinstance(options.checkpoint_activations, str):
            yield from at_least(options, "blocks", checkpoint_activations=1)
        yield from at_least(options, loops=1)
        yield from at_most(options, loops=MAX_LOOPS)
        yield from _parametrization_faults(options)
        yield from _train_loops_faults(options)
        yield from _head_transform_faults(options)
        yield from at_least(options, token_types=0, unique_layers=1, embed_dim=1)
        if options.embed_map_first and options.embed_dim in (None, options.dim):
            rule = "is about the map from model.embed_dim to model.dim, and they are the same"
            yield Fault("embed_map_first", rule, options.embed_map_first, "Set model.embed_dim.")
        yield from in_range(options, dropout=(0, 1))
        yield from above(options, "Try 1.0.", residual_multiplier=0)
        if not isinstance(options.logit_scale, str):
            yield from above(options, "Try 1.0 or learned.", logit_scale=0)
        yield from above(options, "null caps nothing.", logit_softcap=0)
        if options.embed_scale != "sqrt_dim":
            yield from above(options, "Try 1.0 or sqrt_dim.", embed_scale=0)


def _parametrization_faults(options: Any) -> Faults:
    """Yields the faults of model.parametrization and what it excludes."""
    if options.parametrization != "mup":
        if options.base_dim is not None:
            rule = "is about model.parametrization=mup"
            yield Fault("base_dim", rule, options.base_dim, "Set that, or leave it out.")
        return
    if options.base_dim is None:
        rule = "needs model.base_dim, the dim at which the rate was chosen"
        yield Fault("parametrization", rule, "mup", "Try model.base_dim=64.")
        return
    yield from at_least(options, base_dim=1)
    if options.base_dim > options.dim:
        rule = f"must be at most model.dim, {options.dim}"
        yield Fault("base_dim", rule, options.base_dim, "It is the dim of the smaller model.")
    if options.embed_scale == "sqrt_dim":
        rule = "grows with dim, and parametrization=mup keeps embeddings as they are"
        yield Fault("embed_scale", rule, "sqrt_dim", "Try model.embed_scale=8.0, a number.")
    if options.logit_scale == "learned":
        rule = "is trained, and parametrization=mup divides logits by dim / base_dim"
        yield Fault("logit_scale", rule, "learned", "Try 1.0.")


def _train_loops_faults(options: Any) -> Faults:
    low, high = loop_range(options.train_loops, options.loops)
    if options.train_loops is not None and not 1 <= low <= high <= options.loops:
        rule = "must be from 1 to model.loops, the least before the most"
        got = f"{options.train_loops} and {options.loops}"
        fix = f"Try [1, {options.loops}]." if options.loops > 1 else "Set model.loops too."
        yield Fault("train_loops", rule, got=got, fix=fix)


def _head_transform_faults(options: Any) -> Faults:
    for name, default in {"head_activation": "gelu", "head_transform_bias": True}.items():
        value = getattr(options, name)
        if not options.head_transform and value != default:
            rule = "is about model.head_transform, which is false"
            yield Fault(name, rule, format_value(value), "Set model.head_transform=true.")


@SETTINGS.register("data")
@dataclass(frozen=True)
class DataSettings:
    """How examples become batches; the options of the corpus are next to these."""

    # tokens of an example; of pairs, of the longer side, special tokens included
    seq_len: int = 128
    # of a text: tokens of an example of validation, up to model.max_len; null is seq_len
    valid_len: int | None = None
    batch_size: int = 8  # sequences per optimizer step, all devices and accumulation together
    # of pairs: rows x longest side per optimizer step; batch_size is then not used
    batch_tokens: int | None = None
    # what happens to pairs beyond seq_len; null is error
    too_long: Literal["error", "drop", "truncate"] | None = None
    # of a text: whether its documents are kept apart, so that none sees or predicts another
    documents: bool = False
    num_workers: int = 0  # loader processes per device
    seed: int | None = None  # of the order of examples; null is seed
    cache: str | None = None  # directory of prepared tokens; null is the user's cache directory

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", seq_len=1, valid_len=1, batch_tokens=1)
        yield from at_least(options, "sequence", batch_size=1)
        yield from at_least(options, num_workers=0, seed=0)
        yield from not_empty(options, cache="null is the user's cache directory.")


@SETTINGS.register("tokenizer")
@dataclass(frozen=True)
class TokenizerSettings:
    """The setting next to the options of a tokenizer."""

    shared: bool = True  # of pairs: one tokenizer for source and target; false: one for each


@SETTINGS.register("ema")
@dataclass(frozen=True)
class EMASettings:
    """An exponential moving average of the weights, which is validated and loaded in their
    place.
    """

    decay: float | None = None  # of the average, per optimizer step, e.g. 0.999; null: none

    @classmethod
    def check(cls, options, context):
        yield from in_range(options, decay=(0, 1))


@SETTINGS.register("checkpoints")
@dataclass(frozen=True)
class CheckpointSettings:
    """Which checkpoints are kept next to the last one, and their average at the end."""

    average: int = 1  # the mean of the last so many is validated and loaded; 1: only the last
    keep_best: int = 1  # number of checkpoints with the best values of `metric`
    metric: str = VAL_LOSS  # column of metrics.csv; best.ckpt has its best value
    mode: Literal["min", "max"] | None = None  # which value is best; null is by the metric's name
    # optimizer steps between checkpoints that are kept for good; null: none
    keep_every: int | None = None
    asynchronous: bool = False  # write a copy of the state while training goes on

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, average=1, keep_best=1)
        yield from at_least(options, "step", keep_every=1)
        yield from metric_option_faults(options, "metric", "checkpoints")


@SETTINGS.register("init_from")
@dataclass(frozen=True)
class InitFromSettings:
    """What a new run starts from: weights, and the architecture and the tokenizer but for what is
    stated; init_from=RUN is init_from.run=RUN.
    """

    # directory of a run, of which the best checkpoint counts, or one of its checkpoints; directory
    # of a published model, or its name on the hub; null: none
    run: str | None = None
    # patterns of names of tensors that may be missing, unused or of another shape: decoder.4.*;
    # null: any, which are then listed
    allow: list[str] | None = None

    @classmethod
    def check(cls, options, context):
        yield from not_empty(options, run="Add init_from=RUN; null is none.")
        if options.allow and options.run is None:
            yield Fault(
                "allow",
                "is about the weights of init_from.run, which is null",
                got=options.allow,
                fix="Set init_from.run, or leave it out.",
            )


@SETTINGS.register("lora")
@dataclass(frozen=True)
class LoRASettings:
    """Low-rank adapters, which are then the only trained parameters (Hu et al., 2021,
    arXiv:2106.09685).
    """

    rank: int | None = None  # rows of A and columns of B; null: no adapters
    alpha: float | None = None  # B A is multiplied by alpha / rank; null is rank
    dropout: float = 0.0  # probability, on the input of A
    # names of linear maps, or patterns of their paths: decoder.*.attn.q; null is [q, v]
    of: list[str] | None = None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, rank=1)
        yield from above(options, "null is lora.rank.", alpha=0)
        yield from in_range(options, dropout=(0, 1))
        yield from not_empty(options, of="Try [q, v].")
        for name in ("alpha", "dropout", "of") if options.rank is None else ():
            if value := getattr(options, name):
                rule = "is about adapters, and lora.rank is null"
                yield Fault(name, rule, value, "Set lora.rank.")


@SETTINGS.register("stack")
@dataclass(frozen=True)
class StackSettings:
    """The blocks of a stack; differences from the shared components are next to these."""

    layers: int | None = None  # blocks; null is model.layers
    # blocks with weights of their own; null is model.unique_layers
    unique_layers: int | None = None
    pattern: list[str] | None = None  # variants, repeated and cut at `layers`; null is [base]
    first: list[str] | None = None  # variants laid over the start
    last: list[str] | None = None  # variants laid over the end
    variants: dict | None = None  # name -> differences from the stack's base
    layout: list | None = None  # sublayers of a block; null is [attn, ffn]
    cross: dict | str | None = None  # differences of the attention to another stack

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "block", layers=1, unique_layers=1)
        yield from at_most(options, "blocks", layers=MAX_BLOCKS)
        yield from not_empty(options, pattern="null is [base].")


def default_settings() -> dict[str, Any]:
    """Returns the defaults of all settings, in the order of a saved config; stacks have none."""
    nodes = {
        name: {key: option.default for key, option in SETTINGS.options(name).items()}
        for name in ("run", "model", "data", "tokenizer", "ema", "checkpoints", "init_from", "lora")
    }
    nodes["model"] = {key: v for key, v in nodes["model"].items() if key not in STACKS}
    return nodes.pop("run") | nodes


def missing_settings(config: Node) -> Faults:
    """Yields the fault of each missing setting: a run reads all of them."""
    for name, node, path in (
        ("run", config, ""),
        ("model", config.get("model"), "model."),
        ("data", config.get("data"), "data."),
    ):
        if isinstance(node, Mapping):
            for key, option in SETTINGS.options(name).items():
                if key not in node and key not in STACKS:
                    yield Fault(
                        f"{path}{key}",
                        "is missing; a config needs it",
                        fix=f"Its default is {option.default}.",
                    )
