"""DeepSeek-V2 (DeepSeek-AI, 2024, arXiv:2405.04434)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    PRE_NORMS,
    length,
    rope,
    sizes,
    tied,
    unread,
)
from xformer_kit.hub.families.deepseek_v3 import (
    GROUP_KEYS,
    LATENT_KEYS,
    LATENT_WEIGHTS,
    dense_first,
    expert_groups,
    experts,
    latent_eps,
    mixture,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Values, unsupported

METHOD = "topk_method"
METHODS = ("greedy", "group_limited_greedy")
GROUPS = expert_groups(None, None, "max")


def groups(config: Values) -> dict:
    """Groups of experts, which one of the methods of choice has."""
    if (method := config.get(METHOD, "greedy")) not in METHODS:
        raise unsupported(METHOD, method, METHODS)
    return GROUPS.read({} if method == "greedy" else config)


def group_keys(values: Values) -> dict:
    """The method of choice, and the groups."""
    limited = values["ffn.router.groups"] > 1
    return {METHOD: METHODS[limited], **GROUPS.write(values)}


FAMILY = Family(
    preset="deepseek_v2",
    architectures=("DeepseekV2ForCausalLM",),
    keys=(
        *sizes(),
        length(2048),
        *LATENT_KEYS,
        latent_eps(1e-6),
        *mixture(None, 2, 1.0),
        dense_first(0),
        Functions((METHOD, *GROUP_KEYS), groups, group_keys),
        rope(),
        Fixed("scoring_func", "softmax"),
        Fixed("mlp_bias", False),
        unread("norm_topk_prob"),
        tied(False),
    ),
    weights=(*EMBEDDING_AND_HEAD, *PRE_NORMS, *LATENT_WEIGHTS, *experts()),
    tied=HEAD_IS_EMBEDDING,
)
