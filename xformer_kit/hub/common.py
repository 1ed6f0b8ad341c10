"""Parts of the tables that many families share."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from xformer_kit.hub.keys import (
    Choice,
    Entry,
    Functions,
    Key,
    NumberKey,
    Values,
    refuse,
    unsupported,
)
from xformer_kit.hub.layouts import STACKED
from xformer_kit.hub.weights import Weight, linear
from xformer_kit.registry import config_error

# Names in transformers -> ours; the first name of ours is written.
ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {
        "gelu": "gelu",
        "gelu_python": "gelu",
        "gelu_pytorch_tanh": "gelu_tanh",
        "gelu_new": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu_accurate": "gelu_tanh",
        "quick_gelu": "gelu_quick",
        "silu": "silu",
        "swish": "silu",
        "relu": "relu",
        "relu2": "relu2",
        "leaky_relu": "leaky_relu",
        "linear": "identity",
        "mish": "mish",
        "relu6": "relu6",
        "sigmoid": "sigmoid",
        "tanh": "tanh",
    }
)


def activation(theirs: str, default: str, ours: str = "ffn.activation") -> Choice:
    """The activation of the feed-forward networks."""
    return Choice(theirs, ours, ACTIVATIONS, default)


def sizes(
    dim: str = "hidden_size", layers: str = "num_hidden_layers", heads: str = "num_attention_heads"
) -> tuple[Entry, ...]:
    """The sizes that every model has; the vocabulary is `vocab_size`."""
    return (
        Key("vocab_size", "model.vocab_size"),
        Key(dim, "model.dim"),
        Key(layers, "model.layers"),
        Key(heads, "attn.heads"),
    )


def tied(default: bool) -> Key:
    """Whether the head is the embedding."""
    return Key("tie_word_embeddings", "model.tie_embeddings", default)


def length(default: int, theirs: str = "max_position_embeddings") -> Key:
    """The longest text."""
    return Key(theirs, "model.max_len", default)


def unread(*keys: str) -> Functions:
    """Keys of old files that the class in transformers does not read."""
    return Functions(keys, lambda config: {})


# The padding token of a class may be beyond a small vocabulary, which torch refuses.
ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")
# Keys of a scaling in transformers -> options of ours.
SCALING_KEYS = {
    "factor": "factor",
    "original_max_position_embeddings": "original",
    "low_freq_factor": "low",
    "high_freq_factor": "high",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all",
    "attention_factor": "attention_factor",
    "short_factor": "short",
    "long_factor": "long",
    "truncate": "truncate",
}

# What the scalings of a class need; the other keys have defaults.
NEEDED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor"),
}


def rope_settings(config: Values, theta: float, fraction: float = 1.0) -> dict[str, Any]:
    """Returns the settings of rotary positions of a config.json, {rope_theta,
    partial_rotary_factor, rope_type, ...}, of files before transformers 5 as well.
    """
    node = config.get("rope_parameters") or config.get("rope_scaling") or {}
    own = {key: config[key] for key in ("rope_theta", "partial_rotary_factor") if key in config}
    found = {"rope_theta": theta, "partial_rotary_factor": fraction, **own, **node}
    found["rope_type"] = found.pop("type", None) or found.get("rope_type") or "default"
    return found


def position_options(settings: Values, at: str = "position") -> dict[str, Any]:
    """Returns the overrides of settings of rotary positions."""
    settings = dict(settings)
    name = settings.pop("rope_type")
    options = {
        f"{at}.theta": float(settings.pop("rope_theta")),
        f"{at}.fraction": float(settings.pop("partial_rotary_factor") or 1.0),
    }
    if name == "default":
        return options | {f"{at}.scaling": "none"}
    if name not in ("linear", "dynamic", "yarn", "llama3", "longrope", "su"):
        raise refuse("rope_parameters.rope_type", name, "is no scaling that is known here")
    for key in settings:
        if key not in SCALING_KEYS:
            raise refuse(f"rope_parameters.{key}", settings[key], "is not known here")
    for key in NEEDED.get(name, ()):
        if settings.get(key) is None:
            raise config_error(f"rope_parameters.{key}", f"is needed with rope_type={name}")
    scaling = {
        SCALING_KEYS[key]: list(value) if isinstance(value, list) else value
        for key, value in settings.items()
        if value is not None
    }
    return options | {f"{at}.scaling": {"name": "longrope" if name == "su" else name, **scaling}}


def rope_node(values: Values, at: str = "position", default: float = 1.0) -> dict[str, Any]:
    """Returns the settings of transformers for the options of a position. default: the fraction of
    the class, which is not written if it is 1.
    """
    scaling = values.get(f"{at}.scaling", values.get("position.scaling", "none"))
    theta = values.get(f"{at}.theta", values.get("position.theta", 10_000.0))
    fraction = values.get(f"{at}.fraction", values.get("position.fraction", 1.0))
    node = {"rope_theta": theta, "rope_type": "default"}
    if fraction != 1.0 or default != 1.0:
        node["partial_rotary_factor"] = fraction
    if isinstance(scaling, Mapping) and scaling["name"] != "none":
        node["rope_type"] = scaling["name"]
        theirs = {own: key for key, own in SCALING_KEYS.items()}
        node |= {theirs[own]: v for own, v in scaling.items() if own != "name" and v is not None}
    return node


def rope(theta: float = 10_000.0, fraction: float = 1.0) -> Functions:
    """Rotary positions that are the same in all layers. theta, fraction: of the class."""
    key = "partial_rotary_factor"

    def write(values: Values) -> dict[str, Any]:
        share = {key: values["position.fraction"]} if fraction != 1.0 else {}
        return {"rope_parameters": {**rope_node(values), **share}}

    return Functions(
        ROPE_KEYS, lambda config: position_options(rope_settings(config, theta, fraction)), write
    )


WIDTH = NumberKey("intermediate_size", "ffn.width")
SILU = activation("hidden_act", "silu")
SILU_OF_EXPERTS = activation("hidden_act", "silu", "ffn.expert.activation")


def decoder_keys(
    *,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    width: Entry = WIDTH,
    activated: Entry = SILU,
    eps: Entry | float = 1e-6,
    positions: int = 2048,
    theta: float = 10_000.0,
    fraction: float = 1.0,
    tie: bool = False,
) -> tuple[Entry, ...]:
    """The keys of a decoder like Llama. width, activated: of its networks. The others: values of a
    file without the key.
    """
    return (
        *sizes(),
        Key("num_key_value_heads", "attn.kv_heads", kv_heads),
        Key("head_dim", "attn.head_dim", head_dim),
        width,
        activated,
        eps if isinstance(eps, Entry) else Key("rms_norm_eps", "norm.eps", eps),
        length(positions),
        rope(theta, fraction),
        tied(tie),
    )


def window(default: int | None = None, *switch: str) -> Functions:
    """A window that all layers have; null is none. default: of a file without the key. switch: a
    key without which there is none.
    """
    key = "sliding_window"

    def read(config: Values) -> dict[str, Any]:
        size = config.get(key, default) if all(config.get(one) for one in switch) else None
        if size is None:
            return {"mask": "causal"}
        return {"mask": "sliding_window", "mask.window": size}

    def write(values: Values) -> dict[str, Any]:
        used = values["mask.name"] == "sliding_window"
        return {key: values.get("mask.window"), **dict.fromkeys(switch, used)}

    return Functions((key, *switch), read, write)


LOCAL = "model.decoder.variants.local"  # layers with a window
KINDS = {"sliding_attention": "local", "full_attention": "base"}


def all_are(value: str, key: str = "layer_types") -> Functions:
    """A list of which only one item can be composed, which is not written."""

    def read(config: Values) -> dict[str, Any]:
        for item in config.get(key) or ():
            if item != value:
                raise unsupported(key, item, (value,))
        return {}

    return Functions((key,), read)


def rope_of_kinds(
    config: Values, paths: Mapping[str, str], theta: Mapping[str, float], old: Mapping[str, Values]
) -> dict[str, Any]:
    """Returns the overrides of rotary positions that differ between kinds of layers. paths: kind ->
    config path. theta: of files without it. old: kind -> the keys that a file before transformers 5
    has for it.
    """
    node = config.get("rope_parameters") or {}
    if not node.keys() <= paths.keys():
        node = {}
    found: dict[str, Any] = {}
    for kind, path in paths.items():
        keys = {"rope_parameters": node[kind]} if node.get(kind) else old[kind]
        found |= position_options(rope_settings(keys, theta[kind]), path)
    return found


def write_rope_of_kinds(values: Values, paths: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings of transformers for each kind of layers that the model has."""
    return {"rope_parameters": {kind: rope_node(values, path) for kind, path in paths.items()}}


def parallel_layout(is_parallel: bool, shared: bool = True) -> dict[str, Any]:
    """The overrides of blocks whose attention and feed-forward network are parallel, or not.
    shared: whether both read the output of one norm.
    """
    layout = [["attn", "ffn"]] if is_parallel else None
    return {"model.decoder.layout": layout, "placement.shared": shared or not is_parallel}


def query_key_value_bias(theirs: str, default: bool) -> Choice:
    """Whether the maps to queries, keys and values have biases; that of the output has none."""
    return Choice(theirs, "attn.bias", {False: False, True: ["q", "k", "v"]}, default)


def all_biases(theirs: str, default: bool) -> Functions:
    """Whether the maps of attentions and networks have biases."""
    return Functions(
        (theirs,),
        lambda config: dict.fromkeys(("attn.bias", "ffn.bias"), config.get(theirs, default)),
        lambda values: {theirs: values["attn.bias"]},
    )


def query_key_norm(theirs: str, kind: str = "head") -> Choice:
    """Whether queries and keys are normalised. kind: name of the norm."""
    return Choice(theirs, "attn.qk_norm", {False: "none", True: kind}, False)


def is_parallel(values: Values) -> bool:
    """Whether attention and feed-forward network of a composition are parallel."""
    return values.get("model.decoder.layout") == [["attn", "ffn"]]


def layer_types(
    names: Mapping[str, str],
    default: Callable[[Values], Sequence[str]],
    *read_by_default: str,
    stack: str = "decoder",
) -> Functions:
    """The kind of each layer, a list. names: kind in transformers -> variant of the stack, or base.
    default: the list of a file without it. read_by_default: keys that this reads.
    """
    key = "layer_types"

    def read(config: Values) -> dict[str, Any]:
        kinds = list(config.get(key) or default(config))
        for kind in kinds:
            if kind not in names:
                raise unsupported(key, kind, names)
        return {f"model.{stack}.pattern": shortest_period([names[kind] for kind in kinds])}

    def write(values: Values) -> dict[str, Any]:
        kinds = {own: kind for kind, own in reversed([*names.items()])}
        return {key: [kinds[variant] for variant in values[f"model.{stack}.order"]]}

    return Functions((key, *read_by_default), read, write)


def pattern_options(order: Sequence[str], variants: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides of the variants of layers. order: the variant of each layer. variants: option
    of a variant -> value, such as local.mask.window; without those that no layer has.
    """
    used = {name: value for name, value in variants.items() if name.split(".")[0] in order}
    found: dict[str, Any] = {"model.decoder.pattern": shortest_period(list(order))}
    if set(order) <= {"base"}:
        found["model.decoder.variants"] = None
    return found | {f"model.decoder.variants.{name}": value for name, value in used.items()}


def shortest_period(items: list[str]) -> list[str]:
    """Returns the shortest list that gives `items` if it is repeated and cut."""
    return next(
        items[:n]
        for n in range(1, len(items) + 1)
        if all(item == items[at % n] for at, item in enumerate(items))
    )


def gated_ffn(theirs: str, ours: str = "decoder.{i}.ffn") -> tuple[Weight, ...]:
    """The three matrices of a gated network, with biases."""
    names = ("gate", "up", "down")
    return tuple(w for n in names for w in linear(f"{theirs}.{n}_proj", f"{ours}.{n}"))


def projections(
    theirs: str, ours: str = "decoder.{i}.attn", out: str = "o_proj"
) -> tuple[Weight, ...]:
    """The four maps of an attention, with biases."""
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": out}
    return tuple(w for n, own in names.items() for w in linear(f"{theirs}.{own}", f"{ours}.{n}"))


def experts(
    theirs: str, names: Sequence[str] = ("gate_proj", "up_proj", "down_proj")
) -> tuple[Weight, ...]:
    """The matrices of experts, each in tensors of its own, of gated networks. names: gate, up and
    down in the file.
    """
    ours = ("gate", "up", "down")
    return tuple(
        Weight(f"{theirs}.{{e}}.{name}.weight", f"decoder.{{i}}.ffn.experts.{own}.weight", STACKED)
        for name, own in zip(names, ours, strict=True)
    )


def offset_norm(theirs: str, ours: str) -> Weight:
    """A norm whose gain is 1 + weight (Gemma)."""
    return Weight(f"{theirs}.weight", f"{ours}.offset")


def fully_connected(
    theirs: str, up: str, down: str, ours: str = "decoder.{i}.ffn"
) -> tuple[Weight, ...]:
    """The two matrices of a network without a gate, with biases."""
    return (*linear(f"{theirs}.{up}", f"{ours}.up"), *linear(f"{theirs}.{down}", f"{ours}.down"))


LAYER = "model.layers.{i}"
EMBEDDING_AND_HEAD = (
    Weight("model.embed_tokens.weight", "embed.weight"),
    Weight("lm_head.weight", "head.weight"),
    *linear("model.norm", "decoder.norm"),
)
PRE_NORMS = (
    *linear(f"{LAYER}.input_layernorm", "decoder.{i}.placement.attn.norm.0"),
    *linear(f"{LAYER}.post_attention_layernorm", "decoder.{i}.placement.ffn.norm.0"),
)
OUTPUT_NORMS = (
    *linear(f"{LAYER}.post_attention_layernorm", "decoder.{i}.placement.attn.norm.0"),
    *linear(f"{LAYER}.post_feedforward_layernorm", "decoder.{i}.placement.ffn.norm.0"),
)
LLAMA_WEIGHTS = (
    *EMBEDDING_AND_HEAD,
    *PRE_NORMS,
    *projections(f"{LAYER}.self_attn"),
    *gated_ffn(f"{LAYER}.mlp"),
)
HEAD_IS_EMBEDDING = (("lm_head.weight", "model.embed_tokens.weight"),)
