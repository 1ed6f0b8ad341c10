"""What docs/contract.md describes: the base class of each kind, and the classes and functions that
components receive or use.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Contract(NamedTuple):
    """The contract of a kind."""

    module: str  # from which its registry is imported
    base: str | None = None  # name of its base class there
    also: tuple[str, ...] = ()  # other names of this module: classes that it receives, functions
    traits: str = ""  # class of its properties in contexts
    about: str = ""  # module whose docstring describes the kind, if it has no base class


KINDS: Mapping[str, Contract] = {
    "attn": Contract(
        "xformer_kit.attention",
        "Attention",
        ("check_heads", "head_channels", "channels", "real_tokens"),
        "AttentionTraits",
    ),
    "attn.gate": Contract("xformer_kit.attention", "Gate"),
    "attn.qk_norm": Contract("xformer_kit.attention", "QKNorm"),
    "attn.score": Contract("xformer_kit.attention", "Score", ("count_keys",)),
    "mask": Contract("xformer_kit.mask", "Mask", ("matrix",), "MaskTraits"),
    "position": Contract(
        "xformer_kit.position",
        "Position",
        ("positions_are_slots", "rotate_nothing", "token_distances", "gather_columns"),
        "PositionTraits",
    ),
    "position.scaling": Contract("xformer_kit.position", "Scaling"),
    "norm": Contract("xformer_kit.norm", traits="NormTraits", about="xformer_kit.norm.norms"),
    "placement": Contract(
        "xformer_kit.placement", "Placement", ("SublayerGroup", "Sublayer", "SublayerNorms")
    ),
    "ffn": Contract("xformer_kit.ffn", "FFN"),
    "ffn.router": Contract("xformer_kit.ffn", "Router", ("Routes", "route_all", "count_experts")),
    "ffn.expert": Contract("xformer_kit.ffn", "Dense", ("hidden_width",)),
    "extra": Contract(
        "xformer_kit.extra",
        "Extra",
        (
            *("ExtraInput", "Chosen", "Prediction", "previous", "previous_places"),
            *("PreviousPlaces", "first_layers", "to_memory", "from_memory"),
        ),
    ),
    "kernel": Contract(
        "xformer_kit.kernel",
        "Kernel",
        ("Recurrence", "KernelExplanation", "bias", "scaled_products"),
    ),
    "task": Contract("xformer_kit.objective", "Objective", ("blank_ids", "join_pieces")),
    "data": Contract("xformer_kit.data.corpus", "Corpus", ("PairCorpus", "Probe", "hash_fraction")),
    "tokenizer": Contract("xformer_kit.data.tokenizer", "Tokenizer"),
    "init": Contract("xformer_kit.model.init_distributions", "Init", ("Matrix",)),
    "optim": Contract(
        "xformer_kit.optim",
        also=("OptimizerAttributes", "parameter_groups", "create_optimizer", "skipped"),
        about="xformer_kit.optim.grouping",
    ),
    "schedule": Contract("xformer_kit.optim", "Schedule"),
    "logger": Contract(
        "xformer_kit.config.options.logger_options",
        about="xformer_kit.config.options.logger_options",
    ),
    "metrics": Contract(
        "xformer_kit.metrics", "BuiltInMetric", about="xformer_kit.metrics.registered"
    ),
    "callbacks": Contract(
        "xformer_kit.config.options.callbacks", about="xformer_kit.config.options.callbacks"
    ),
}
# Heading -> (text, module, names) of what several kinds receive or use.
SHARED: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "Checks and faults": (
        "Each helper yields faults, for `yield from` in `check`. `REQUIRED` is the default of an"
        " option that a config must set.",
        "xformer_kit.registry",
        (
            *("Context", "Options", "OptionGroup", "Fault", "Unused", "at_least", "at_most"),
            *("above", "in_range", "in_open_range", "not_empty", "independent_check"),
            *("divisors", "nearest_values", "alternatives"),
        ),
    ),
    "Tokens and the context of a forward pass": (
        "b is the batch, t the tokens of a call (queries), s those of the keys, h the heads.",
        "xformer_kit.tensors",
        (
            *("Tokens", "AttentionContext", "FFNContext", "after_extras", "expand_heads"),
            *("masked_weights", "scaled_to_unit", "at_least_fp32", "no_autocast"),
            *("ShortConvolution", "document_segments"),
        ),
    ),
    "Random numbers of an example": (
        "For `make_example` of a probe.",
        "xformer_kit.data.random_stream",
        ("RandomStream",),
    ),
    "The input of a block": (
        "For `multi_token_states` of an extra.",
        "xformer_kit.model.block",
        ("BlockInput",),
    ),
    "Caches": (
        "A sublayer or an extra returns an empty cache, and gets it in each call of generation."
        " `model.cache(rows, length)` is a `GenerationCache`, which holds those of all layers.",
        "xformer_kit.tensors",
        ("Cache", "KeyValueCache", "StateCache", "JointCache"),
    ),
    "The cache of a model": (
        "",
        "xformer_kit.model.generation_cache",
        ("GenerationCache",),
    ),
    "Parameters": (
        'A component describes its parameters in `parameter_info = {"q": hidden("heads*head_dim",'
        ' "dim")}`, of the class or, if it depends on options, of the instance.',
        "xformer_kit.tensors",
        ("hidden", "vector", "embedding", "ParameterInfo", "SubmoduleInfo", "parameter_table"),
    ),
}
# Module -> names of types that signatures use.
TYPE_NAMES: Mapping[str, tuple[str, ...]] = {
    "xformer_kit.registry.fault": ("Faults",),
    "xformer_kit.tensors.parameters": ("Role", "Info"),
    "xformer_kit.tensors.report": ("Report",),
    "xformer_kit.attention.qk_norm": ("Norm",),
    "xformer_kit.kernel.base": ("ScoreFn",),
    "xformer_kit.mask.base": ("Band",),
    "xformer_kit.placement.base": ("State", "MakeNorm"),
    "xformer_kit.extra.base": ("Branch", "Caches"),
    "xformer_kit.model.block": ("CrossLayerState",),
    "xformer_kit.objective": ("Batch", "Example", "Loss", "Predictions"),
    "xformer_kit.data.plain": ("Plain",),
    "xformer_kit.data.corpus.base": ("TextPairs",),
    "xformer_kit.data.tokenizer.base": ("Ids",),
}
# Class -> members that only the package uses.
HIDDEN: Mapping[str, tuple[str, ...]] = {
    "Context": ("changed",),
    "Fault": ("under", "unused"),
    "Options": ("bounded",),
    "Unused": ("unused",),
    "Mask": ("hides_all",),
    "Extra": ("overrides",),
    "AttentionContext": ("visible_pairs", "covers"),
    "GenerationCache": (
        *("use_windows", "check", "unchanged_if_refused", "append", "visible", "cross_caches"),
        *("padded_later", "embedded", "uncached", "window_left"),
    ),
}
