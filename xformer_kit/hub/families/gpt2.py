"""GPT-2 (Radford et al., 2019, Language Models are Unsupervised Multitask Learners)."""

from xformer_kit.hub.common import activation, length, sizes, tied
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.layouts import CONCATENATED, SAME, TRANSPOSED
from xformer_kit.hub.weights import Weight, linear

HERE, LAYER = "decoder.{i}", "transformer.h.{i}"
QKV = tuple(f"{HERE}.attn.{name}" for name in "qkv")


SCALE_KEYS = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx")
# Values of both keys -> attn.scale.
SCALES = {(True, False): None, (True, True): "by_layer", (False, False): 1.0}


def scale(config: Values) -> dict:
    """The factor on scores."""
    pair = config.get(SCALE_KEYS[0], True), config.get(SCALE_KEYS[1], False)
    if pair not in SCALES:
        raise refuse(SCALE_KEYS[1], True, f"needs {SCALE_KEYS[0]}=true")
    return {"attn.scale": SCALES[pair]}


def scale_keys(values: Values) -> dict:
    """Both keys of a factor."""
    found = (pair for pair, own in SCALES.items() if own == values["attn.scale"])
    return dict(zip(SCALE_KEYS, next(found, (True, False)), strict=True))


def conv1d(theirs: str, ours: str) -> tuple[Weight, Weight]:
    """A map whose weight is (in, out)."""
    weight, bias = linear(theirs, ours)
    return Weight(weight.theirs, weight.ours, TRANSPOSED), bias


FAMILY = Family(
    preset="gpt2",
    architectures=("GPT2LMHeadModel", "GPT2Model"),
    keys=(
        *sizes("n_embd", "n_layer", "n_head"),
        length(1024, "n_positions"),
        Key("n_inner", "ffn.width", None),
        activation("activation_function", "gelu_new"),
        Key("layer_norm_epsilon", "norm.eps", 1e-5),
        Functions(SCALE_KEYS, scale, scale_keys),
        tied(True),
        Fixed("add_cross_attention", False),
    ),
    weights=(
        Weight("transformer.wte.weight", "embed.weight"),
        Weight("transformer.wpe.weight", "decoder.position.base.weight"),
        Weight("lm_head.weight", "head.weight"),
        *linear("transformer.ln_f", "decoder.norm"),
        *linear(f"{LAYER}.ln_1", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.ln_2", f"{HERE}.placement.ffn.norm.0"),
        Weight(
            f"{LAYER}.attn.c_attn.weight",
            tuple(f"{one}.weight" for one in QKV),
            TRANSPOSED | CONCATENATED,
        ),
        Weight(
            f"{LAYER}.attn.c_attn.bias", tuple(f"{one}.bias" for one in QKV), SAME | CONCATENATED
        ),
        *conv1d(f"{LAYER}.attn.c_proj", f"{HERE}.attn.o"),
        *conv1d(f"{LAYER}.mlp.c_fc", f"{HERE}.ffn.up"),
        *conv1d(f"{LAYER}.mlp.c_proj", f"{HERE}.ffn.down"),
    ),
    prefix="transformer.",
    unused=("*.attn.bias", "*.attn.masked_bias"),
    tied=(("lm_head.weight", "transformer.wte.weight"),),
)
