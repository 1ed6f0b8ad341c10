"""Mixtures of experts: the configs that are refused, each with its sentence."""

import re

import pytest

from tests.messages import messages
from xformer_kit.laws import faults, tiny_config

FAULTS = {
    "experts=0": "experts: must be at least 1 expert; got 0.",
    "top_k=6": "top_k: must be at most 5 experts; got 6.",
    "top_k=0": "top_k: must be at least 1 expert; got 0.",
    "shared=-1": "shared: must be at least 0 expert; got -1.",
    "shared_gate=true": (
        "shared_gate: gates the output of shared experts, and there are none; got true. Set"
        " ffn.shared, or false."
    ),
    "expand=2.0": (
        "width: cannot be set together with ffn.expand; got 19 and 2.0. Set one of them to null."
    ),
    "expert={name: moe}": "expert: no expert is called 'moe'. Known: glu, mlp.",
    "expert={name: glu, width: 3}": (
        "expert.width: expert 'glu' has no option 'width'. It has: activation, activated, clamp,"
        " soft_clamp, offset, bias, inner_norm, scales, dropout. Leave it out."
    ),
    "expert={name: glu, clamp: -1.0}": (
        "expert.clamp: must be above 0; got -1.0. null clamps nothing."
    ),
    "router={name: topk}": "router: 'topk' is called 'softmax' here.",
    "router={name: softmax, groups: 3}": (
        "router.groups: must divide ffn.experts; got 3 and 5. Try 1 or 5."
    ),
    "router={name: softmax, group_limit: 2}": (
        "router.group_limit: must be at most 1 (ffn.router.groups); got 2."
    ),
    "router={name: softmax, groups: 5}": (
        "router.group_limit: 1 of 5 groups have fewer experts than ffn.top_k=2. Choose more groups,"
        " or fewer experts."
    ),
    "router={name: sigmoid, groups: 5, group_limit: 2, group_score: top2}": (
        "router.group_score: 'top2' takes two experts of a group, and 5 groups of 5 have one. Try"
        " max."
    ),
    "router={name: softmax, balance: -1.0}": "router.balance: must be at least 0; got -1.0.",
    "router={name: sigmoid, correction: -1.0}": "router.correction: must be at least 0; got -1.0.",
    "router={name: sigmoid, capacity: 0.0}": (
        "router.capacity: must be above 0; got 0.0. null drops no token."
    ),
    "router={name: sigmoid, scale: 0.0}": "router.scale: must be above 0; got 0.0.",
    "router={name: expert_choice, z_loss: -1.0}": "router.z_loss: must be at least 0; got -1.0.",
}


@pytest.mark.parametrize("word", FAULTS)
def test_wrong_options_are_refused(word):
    import yaml

    key, _, value = word.partition("=")
    assert messages(faults(tiny_config(ffn={"name": "moe", key: yaml.safe_load(value)}))) == [
        f"ffn.{FAULTS[word]}"
    ]


@pytest.mark.parametrize("mask", ["causal", "sliding_window", "prefix"])
def test_expert_choice_needs_a_mask_that_sees_the_whole_text(mask):
    choice = {"name": "moe", "router": "expert_choice"}
    (fault,) = messages(faults(tiny_config(ffn=choice, mask=mask)))
    assert (
        fault
        == "ffn.router: 'expert_choice' lets an expert choose among all tokens of a text, and mask"
        f" '{mask}' hides the later ones. Use ffn.router.name=softmax, or mask=full in an"
        " encoder."
    )
    assert not faults(tiny_config("encoder", ffn=choice, mask="full"))
    assert not faults(
        tiny_config("encoder_decoder", ffn="mlp", encoder={"mask": {"name": "full"}, "ffn": choice})
    )


def test_runs_with_expert_choice_are_refused_in_one_sentence_if_their_data_or_mask_forbid_it():
    from xformer_kit import ConfigError, compose

    with pytest.raises(
        ConfigError, match=r"^ffn.router: 'expert_choice' lets an expert choose .*[^\n]$"
    ):
        compose(["ffn=moe", "ffn.router.name=expert_choice"])
    compose(
        [
            "model=encoder",
            "task=masked_language_modeling",
            "ffn=moe",
            "ffn.router.name=expert_choice",
        ]
    )
    words = [
        "model=encoder_decoder",
        "task=seq2seq",
        "model.encoder.ffn={name: moe, router: {name: expert_choice}}",
    ]
    compose(words)
    sentence = (
        "ffn: 'moe' breaks the law of documents (router 'expert_choice': an expert computes the"
        " best tokens of a row, which may hold several texts), which data.documents=true needs."
        " Choose another ffn.router."
    )
    encoder = ["model=encoder", "task=masked_language_modeling", "data.documents=true"]
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        compose([*encoder, "ffn=moe", "ffn.router.name=expert_choice"])


def test_a_capacity_and_packed_texts_are_refused():
    from xformer_kit import ConfigError, compose

    words = ["data.documents=true", "ffn=moe", "ffn.router.capacity=1.25"]
    sentence = (
        "ffn: 'moe' breaks the law of documents (router 'softmax': in training, an earlier"
        " text of a row can use up the capacity of an expert for the next text), which"
        " data.documents=true needs. Choose another ffn.router."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        compose(words)
    compose(words[1:])


def test_inner_norm_of_experts_is_refused_with_norm_none():
    moe = {"name": "moe", "expert": {"name": "mlp", "inner_norm": True}}
    (fault,) = messages(faults(tiny_config(ffn=moe, norm="none")))
    assert fault.startswith(
        "ffn.expert.inner_norm: takes the norm of model.decoder, and 'none' does nothing."
    )
