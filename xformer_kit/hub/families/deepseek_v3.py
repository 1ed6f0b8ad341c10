"""DeepSeek-V3 (DeepSeek-AI, 2024, arXiv:2412.19437), without the layers that predict further
tokens, which transformers does not load.
"""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    gated_ffn,
    length,
    rope,
    sizes,
    tied,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Choice, Entry, Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.layouts import CONCATENATED, KEYS_AND_VALUES, STACKED
from xformer_kit.hub.weights import Weight, fused, linear

HERE = "decoder.{i}"
ATTN, THEIR_ATTN = f"{HERE}.attn", f"{LAYER}.self_attn"
SHALLOW = "model.decoder.variants.dense.ffn"
DENSE_KEYS, GROUP_KEYS = ("first_k_dense_replace", "intermediate_size"), ("n_group", "topk_group")


def dense_first(default: int) -> Functions:
    """The first layers, which have no experts. default: their number in a file without it."""

    def read(config: Values) -> dict:
        count = min(config.get(DENSE_KEYS[0], default) or 0, config["num_hidden_layers"])
        if count == 0:
            return {"model.decoder.first": None, "model.decoder.variants": None}
        width = config[DENSE_KEYS[1]]
        return {
            "model.decoder.first": ["dense"] * count,
            f"{SHALLOW}.expand": None,
            f"{SHALLOW}.width": width,
        }

    def write(values: Values) -> dict:
        count = values["model.decoder.order"].count("dense")
        width = {DENSE_KEYS[1]: values[f"{SHALLOW}.width"]} if count else {}
        return {DENSE_KEYS[0]: count, **width}

    return Functions(DENSE_KEYS, read, write)


def expert_groups(groups: int | None, limit: int | None, score: str) -> Functions:
    """Groups of experts. groups, limit: of a file without them. score: of a group."""

    def read(config: Values) -> dict:
        count = config.get(GROUP_KEYS[0], groups) or 1
        most = config.get(GROUP_KEYS[1], limit) or 1
        if most >= count:  # all groups
            count, most = 1, 1
        return {
            "ffn.router.groups": count,
            "ffn.router.group_limit": most,
            "ffn.router.group_score": score if count > 1 else "max",
        }

    def write(values: Values) -> dict:
        own = values["ffn.router.groups"], values["ffn.router.group_limit"]
        return dict(zip(GROUP_KEYS, own, strict=True))

    return Functions(GROUP_KEYS, read, write)


def as_many_key_heads(config: Values) -> dict:
    """num_key_value_heads, which must be the number of heads."""
    heads = config["num_attention_heads"]
    if config.get("num_key_value_heads") not in (None, heads):
        rule = f"must be num_attention_heads, {heads}"
        raise refuse("num_key_value_heads", config["num_key_value_heads"], rule)
    return {}


def mixture(top_k: int | None, shared: int | None, scale: float) -> tuple[Entry, ...]:
    """The experts. The parameters are the values of a file without their keys."""
    return (
        Key("n_routed_experts", "ffn.experts"),
        Key("num_experts_per_tok", "ffn.top_k", top_k),
        Key("moe_intermediate_size", "ffn.width"),
        Key("n_shared_experts", "ffn.shared", shared),
        Key("routed_scaling_factor", "ffn.router.scale", scale),
        Fixed("hidden_act", "silu", "swish"),
        Fixed("moe_layer_freq", 1),
        unread("ep_size", "aux_loss_alpha", "seq_aux"),
    )


def experts(*router: Weight) -> tuple[Weight, ...]:
    """The weights of networks with experts and of those without. router: more of the router's."""
    return (
        Weight(f"{LAYER}.mlp.gate.weight", f"{HERE}.ffn.router.weight"),
        *router,
        *(
            Weight(
                f"{LAYER}.mlp.experts.{{e}}.{n}_proj.weight",
                f"{HERE}.ffn.experts.{n}.weight",
                STACKED,
            )
            for n in ("gate", "up", "down")
        ),
        *gated_ffn(f"{LAYER}.mlp.shared_experts", f"{HERE}.ffn.shared"),
        *gated_ffn(f"{LAYER}.mlp"),
    )


CORRECTION = Weight(
    f"{LAYER}.mlp.gate.e_score_correction_bias", f"{HERE}.ffn.router.correction_bias"
)
LATENT_KEYS = (
    Key("kv_lora_rank", "attn.kv_rank", 512),
    Key("q_lora_rank", "attn.q_rank", 1536),
    Key("qk_nope_head_dim", "attn.head_dim", 128),
    Key("qk_rope_head_dim", "attn.rope_head_dim", 64),
    Key("v_head_dim", "attn.v_head_dim", 128),
    Key("attention_bias", "attn.bias", False),
    Functions(
        ("num_key_value_heads",),
        as_many_key_heads,
        lambda values: {"num_key_value_heads": values["attn.heads"]},
    ),
    unread("qk_head_dim", "head_dim"),
)


def latent_eps(default: float) -> Functions:
    """The eps of the norms; that of the norms of latents is a constant of the class. default: of a
    file without it.
    """
    key = "rms_norm_eps"
    return Functions(
        (key,),
        lambda config: {"norm.eps": config.get(key, default), "attn.norm_eps": 1e-6},
        lambda values: {key: values["norm.eps"]},
    )


LATENT_WEIGHTS = (
    Weight(
        (f"{THEIR_ATTN}.q_a_proj.weight", f"{THEIR_ATTN}.q_b_proj.weight"),
        (f"{ATTN}.q_down.weight", f"{ATTN}.q.weight"),
    ),
    Weight(f"{THEIR_ATTN}.q_a_proj.bias", f"{ATTN}.q_down.bias"),
    Weight(f"{THEIR_ATTN}.q_proj.weight", f"{ATTN}.q.weight"),  # without a latent of queries
    *linear(f"{THEIR_ATTN}.q_a_layernorm", f"{ATTN}.q_norm"),
    *fused(f"{THEIR_ATTN}.kv_a_proj_with_mqa", (f"{ATTN}.kv_down", f"{ATTN}.k_rope"), CONCATENATED),
    *linear(f"{THEIR_ATTN}.kv_a_layernorm", f"{ATTN}.kv_norm"),
    *fused(f"{THEIR_ATTN}.kv_b_proj", (f"{ATTN}.k", f"{ATTN}.v"), KEYS_AND_VALUES),
    *linear(f"{THEIR_ATTN}.o_proj", f"{ATTN}.o"),
)
FAMILY = Family(
    preset="deepseek_v3",
    architectures=("DeepseekV3ForCausalLM",),
    keys=(
        *sizes(),
        length(4096),
        *LATENT_KEYS,
        latent_eps(1e-6),
        *mixture(8, 1, 2.5),
        dense_first(3),
        expert_groups(8, 4, "top2"),
        Key("norm_topk_prob", "ffn.router.renormalise", True),
        Choice("rope_interleave", "position.pairing", {True: "interleaved", False: "half"}, True),
        rope(),
        Fixed("scoring_func", "sigmoid"),
        Fixed("topk_method", "noaux_tc"),
        unread("num_nextn_predict_layers", "num_mtp_layers"),
        tied(False),
    ),
    weights=(*EMBEDDING_AND_HEAD, *PRE_NORMS, *LATENT_WEIGHTS, *experts(CORRECTION)),
    unused=("*.rotary_emb.inv_freq", "model.layers.61.*"),
    tied=HEAD_IS_EMBEDDING,
)
