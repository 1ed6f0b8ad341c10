"""BERT (Devlin et al., 2019, arXiv:1810.04805), with its masked-token head."""

from xformer_kit.hub.common import activation, length, sizes
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Entry, Fixed, Key
from xformer_kit.hub.weights import Weight, linear

HERE = "encoder.{i}"
UNUSED = ("*.position_ids", "*.pooler.*")
# Names of norms in files of old versions, the first of which were made for TensorFlow.
OLD_NORMS = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))


def as_encoder(*, is_decoder: bool = True) -> tuple[Entry, ...]:
    """Keys of classes that can be something else than an encoder with a masked-token head."""
    decoder = (Fixed("is_decoder", False), Fixed("add_cross_attention", False))
    return (
        *(decoder if is_decoder else ()),
        Fixed("position_embedding_type", "absolute", None),
        Fixed("tie_word_embeddings", True),
    )


BERT_KEYS = (
    *sizes(),
    Key("intermediate_size", "ffn.width"),
    activation("hidden_act", "gelu"),
    Key("type_vocab_size", "model.token_types", 2),
    Key("layer_norm_eps", "norm.eps", 1e-12),
    *as_encoder(),
)


def embeddings(theirs: str, positions: str = "position_embeddings") -> tuple[Weight, ...]:
    """Tables of tokens, segments and positions, and the norm of their sum."""
    return (
        Weight(f"{theirs}.word_embeddings.weight", "embed.weight"),
        Weight(f"{theirs}.token_type_embeddings.weight", "token_type.weight"),
        Weight(f"{theirs}.{positions}.weight", "encoder.position.base.weight"),
        *linear(f"{theirs}.LayerNorm", "encoder.embed_norm"),
    )


def blocks(theirs: str) -> tuple[Weight, ...]:
    """Maps and norms of a layer."""
    maps = {
        "attn.q": "attention.self.query",
        "attn.k": "attention.self.key",
        "attn.v": "attention.self.value",
        "attn.o": "attention.output.dense",
        "placement.attn.norm": "attention.output.LayerNorm",
        "ffn.up": "intermediate.dense",
        "ffn.down": "output.dense",
        "placement.ffn.norm": "output.LayerNorm",
    }
    pairs = maps.items()
    return tuple(w for ours, own in pairs for w in linear(f"{theirs}.{own}", f"{HERE}.{ours}"))


def head(dense: str, norm: str, bias: str) -> tuple[Weight, ...]:
    """The masked-token head, whose matrix is the embedding."""
    return (
        *linear(dense, "head.transform.dense"),
        *linear(norm, "head.transform.norm"),
        Weight(bias, "head.bias"),
    )


PREDICTIONS = "cls.predictions"
FAMILY = Family(
    preset="bert",
    architectures=("BertForMaskedLM", "BertForPreTraining"),
    keys=(
        *BERT_KEYS,
        activation("hidden_act", "gelu", "model.head_activation"),
        length(512),
        Fixed("directionality", "bidi", None),
    ),
    weights=(
        *embeddings("bert.embeddings"),
        *blocks("bert.encoder.layer.{i}"),
        *head(
            f"{PREDICTIONS}.transform.dense",
            f"{PREDICTIONS}.transform.LayerNorm",
            f"{PREDICTIONS}.bias",
        ),
    ),
    prefix="bert.",
    unused=(*UNUSED, "cls.seq_relationship.*"),
    tied=(
        (f"{PREDICTIONS}.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        (f"{PREDICTIONS}.decoder.bias", f"{PREDICTIONS}.bias"),
    ),
    renamed=OLD_NORMS,
)
