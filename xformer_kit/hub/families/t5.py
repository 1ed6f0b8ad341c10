"""T5 (Raffel et al., 2020, JMLR 21(140)) and T5 v1.1, which has gated networks and, in its released
files, a head of its own.
"""

from xformer_kit.hub.common import ACTIVATIONS, sizes, unread
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Entry, Fixed, Functions, Key, Values, found, unsupported
from xformer_kit.hub.weights import Weight

STACKS = ("encoder", "decoder")
NETWORKS = {"mlp": "", "glu": "gated-"}


def read_layers(config: Values) -> dict:
    """The layers of both stacks."""
    layers = found(config, ("num_layers",), 6)
    of_decoder = config.get("num_decoder_layers")
    return {
        "model.encoder.layers": layers,
        "model.decoder.layers": layers if of_decoder is None else of_decoder,
    }


def write_layers(values: Values) -> dict:
    """The same."""
    layers = (values[f"model.{stack}.layers"] for stack in STACKS)
    return dict(zip(("num_layers", "num_decoder_layers"), layers, strict=True))


def network(default: str) -> Functions:
    """The feed-forward network and its activation: relu, gated-gelu."""

    def read(config: Values) -> dict:
        value = found(config, ("feed_forward_proj",), default)
        gate, _, name = value.rpartition("-")
        if name not in ACTIVATIONS or gate not in ("", "gated"):
            raise unsupported("feed_forward_proj", value, ("relu", "gated-gelu", "gated-silu"))
        own = "gelu_tanh" if value == "gated-gelu" else ACTIVATIONS[name]
        return {"ffn": "glu" if gate else "mlp", "ffn.activation": own}

    def write(values: Values) -> dict:
        own, kind = values["ffn.activation"], values["ffn.name"]
        names = {own: name for name, own in reversed([*ACTIVATIONS.items()])}
        if (kind, own) == ("glu", "gelu_tanh"):
            return {"feed_forward_proj": "gated-gelu"}
        return {"feed_forward_proj": NETWORKS[kind] + names[own]}

    return Functions(("feed_forward_proj",), read, write)


def t5_keys(feed_forward: str, layers: int = 8, heads: int = 6) -> tuple[Entry, ...]:
    """The keys of T5 and of models that were made from it. The arguments: defaults."""
    return (
        sizes()[0],
        Key("d_model", "model.dim", 512),
        Functions(
            ("num_layers", "num_decoder_layers"),
            lambda config: read_layers({"num_layers": layers, **config}),
            write_layers,
        ),
        Key("num_heads", "attn.heads", heads),
        Key("d_kv", "attn.head_dim", 64),
        Key("d_ff", "ffn.width", 2048 if feed_forward == "relu" else 1024),
        network(feed_forward),
        Key("relative_attention_num_buckets", "position.buckets", 32),
        Key("relative_attention_max_distance", "position.longest", 128),
        Key("layer_norm_epsilon", "norm.eps", 1e-6),
        Key("n_positions", "model.max_len", None),  # of old files, which no class reads
        Fixed("is_decoder", False),
        unread("dense_act_fn", "is_gated_act"),  # they follow from feed_forward_proj
    )


def read_head(config: Values) -> dict:
    """Whether the head is the embedding, and, with the same key in old files, whether logits
    are divided by the root of dim.
    """
    tied = config.get("tie_word_embeddings") is not False
    scaled = config.get("scale_decoder_outputs", tied)
    return {"model.tie_embeddings": tied, "model.logit_scale": "per_root_dim" if scaled else 1.0}


def write_head(values: Values) -> dict:
    """The same."""
    return {
        "tie_word_embeddings": values["model.tie_embeddings"],
        "scale_decoder_outputs": values["model.logit_scale"] == "per_root_dim",
    }


def t5_blocks() -> tuple[Weight, ...]:
    """Maps and norms of both stacks."""
    found: list[Weight] = []
    for stack in STACKS:
        here, there = f"{stack}.{{i}}", f"{stack}.block.{{i}}.layer"
        attentions = {"attn": "0.SelfAttention"}
        if stack == "decoder":
            attentions["cross"] = "1.EncDecAttention"
        last = len(attentions)
        network = f"{there}.{last}.DenseReluDense"
        gate, up = f"{here}.ffn.gate.weight", f"{here}.ffn.up.weight"
        for at, name in enumerate((*attentions, "ffn")):
            norm = f"{here}.placement.{name}.norm.0.weight"
            found.append(Weight(f"{there}.{at}.layer_norm.weight", norm))
        found += [
            *(
                Weight(f"{there}.{theirs}.{name}.weight", f"{here}.{ours}.{name}.weight")
                for ours, theirs in attentions.items()
                for name in "qkvo"
            ),
            Weight(f"{network}.wi.weight", up, without=gate),
            Weight((f"{network}.wi_0.weight", f"{network}.wi_1.weight"), (gate, up)),
            Weight(f"{network}.wo.weight", f"{here}.ffn.down.weight"),
            Weight(f"{stack}.final_layer_norm.weight", f"{stack}.norm.weight"),
        ]
    return tuple(found)


BIAS = "SelfAttention.relative_attention_bias.weight"
EMBEDDING_AND_HEAD = (
    Weight("shared.weight", "embed.weight"),
    Weight("lm_head.weight", "head.weight"),
)
UNUSED = ("*.EncDecAttention.relative_attention_bias.weight",)
COPIES = tuple(
    (name, "shared.weight")
    for name in ("lm_head.weight", *(f"{stack}.embed_tokens.weight" for stack in STACKS))
)
ONE_TABLE = tuple(
    Weight(f"{stack}.block.0.layer.0.{BIAS}", f"{stack}.position.base.weight") for stack in STACKS
)
FAMILY = Family(
    preset="t5",
    architectures=("T5ForConditionalGeneration", "T5WithLMHeadModel"),
    keys=(
        *t5_keys("relu", 6, 8),
        Functions(("tie_word_embeddings", "scale_decoder_outputs"), read_head, write_head),
    ),
    weights=(*EMBEDDING_AND_HEAD, *ONE_TABLE, *t5_blocks()),
    prefix="",
    unused=UNUSED,
    tied=COPIES,
)
