"""nanochat (Karpathy, 2025, github.com/karpathy/nanochat)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    activation,
    decoder_keys,
    fully_connected,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.layouts import Layout
from xformer_kit.hub.weights import linear

HERE = "decoder.{i}"


class HalvesOfHeads(Layout):
    """Both halves of the channels of each head in the other order: the file rotates pairs of
    channels by the negative angle, which rotates exchanged pairs by the angle.
    """

    def read(self, tensors, rows, heads):
        return [x.unflatten(0, (-1, 2, heads.head_dim // 2)).flip(1).flatten(0, 2) for x in tensors]

    def write(self, tensors, heads):
        return self.read(tensors, (), heads)


EXCHANGED = HalvesOfHeads()
FAMILY = Family(
    preset="nanochat",
    architectures=("NanoChatForCausalLM",),
    keys=(
        *decoder_keys(activated=activation("hidden_act", "relu2")),
        Key("attention_bias", "attn.bias", False),
        Key("final_logit_softcapping", "model.logit_softcap", 15.0),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *linear(f"{LAYER}.self_attn.q_proj", f"{HERE}.attn.q", EXCHANGED),
        *linear(f"{LAYER}.self_attn.k_proj", f"{HERE}.attn.k", EXCHANGED),
        *linear(f"{LAYER}.self_attn.v_proj", f"{HERE}.attn.v"),
        *linear(f"{LAYER}.self_attn.o_proj", f"{HERE}.attn.o"),
        *fully_connected(f"{LAYER}.mlp", "fc1", "fc2"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
