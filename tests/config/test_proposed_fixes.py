"""The fix that a fault proposes composes. Several faults are reported at once, except those that
only follow from another.
"""

import re

import pytest
from refusals import refused

from xformer_kit import compose
from xformer_kit.config import preflight
from xformer_kit.config.line.overrides import expand

HEADS = (
    "heads, kv_heads, head_dim, v_head_dim, bias, qk_norm, v_norm, clip, clip_normed, gate, scale,"
    " score, dropout, keys"
)
REFUSED = [
    "attn=fourier",
    "attn=fourier position=none",
    "attn=fourier position=none mask=full",
    "attn=nystrom",
    "attn=linformer mask=sliding_window",
    "attn=linformer task=seq2seq model=encoder_decoder",
    "attn=linformer position=none mask=causal task=masked_language_modeling",
    "attn=mean",
    "task=language_modeling model=encoder",
    "task=language_modeling model=encoder_decoder",
    "task=seq2seq model=encoder",
    "task=seq2seq mask=full",
    "task=seq2seq model=encoder_decoder mask=full model.decoder.cross.name=fourier",
    "mask=chunked mask.causal=false",
    "attn=linear mask=sliding_window position=alibi",
    "attn=linear attn.head_dim=7 position=t5",
    "attn=retention mask=full",
    "attn=gated_delta position=xpos mask=chunked",
    "attn=performer mask=prefix task=prefix_language_modeling position=shaw",
    "attn=linear model=encoder mask=sliding_window task=masked_language_modeling",
    "attn=retention task=seq2seq model=encoder_decoder",
    (
        "attn=linear task=seq2seq model=encoder_decoder model.decoder.cross.position=alibi"
        " model.decoder.cross.mask=causal"
    ),
]


def proposed_fixes(sentence):
    """Returns the lists of overrides that a sentence proposes."""
    proposal = re.split(r" (?:[Cc]hoose|Use) ", sentence.rstrip("."))[1]
    fixes, option = [], ""
    for fix in re.split(r", | or ", proposal):
        # Of several values only the first has the option's name.
        fixes.append(fix.split() if "=" in fix else [f"{option}={fix}"])
        option = fixes[-1][-1].partition("=")[0]
    return fixes


@pytest.mark.extended
@pytest.mark.parametrize("line", REFUSED)
def test_each_proposed_fix_composes(line):
    """Together with the first fix of each other fault."""
    overrides, faults = line.split(), refused(line)
    for fix in proposed_fixes(faults[0]):
        keys = tuple(word.partition("=")[0].removesuffix(".name") for word in fix)
        prefixes = tuple(f"{key}." for key in keys)
        kept = [
            word
            for word in overrides
            if word.partition("=")[0] not in keys and not word.startswith(prefixes)
        ]
        fixes_of_others = [word for fault in faults[1:] for word in proposed_fixes(fault)[0]]
        compose([*kept, *fix, *fixes_of_others])


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        (
            "attn.heads=0 attn.dropout=2 attn.bias=9",
            [
                "attn.bias: must be true or false or a list of q or k or v or o; got 9. Try false.",
                "attn.heads: must be at least 1; got 0.",
                "attn.dropout: must be at least 0 and below 1; got 2.",
            ],
        ),
        (  # whether kv_heads divides them is not known
            "attn.heads=abc attn.kv_heads=3 attn.dropout=2 attn.head_dim=0",
            [
                "attn.heads: must be a whole number; got 'abc'. Try 8.",
                "attn.head_dim: must be at least 1 channel; got 0.",
                "attn.dropout: must be at least 0 and below 1; got 2.",
            ],
        ),
        (  # `head` may have been meant for heads, which the default of 8 is not
            "attn.head=3 attn.dropout=2 model.dim=30",
            [
                (
                    "attn.head: attn 'multi_head' has no option 'head'. Did you mean 'heads'? It"
                    f" has: {HEADS}."
                ),
                "attn.dropout: must be at least 0 and below 1; got 2.",
            ],
        ),
        (  # a window is no option of causal, but nobody asked for causal
            "mask=full_ mask.window=5 attn.heads=0",
            [
                (
                    "mask: no mask is called 'full_'. Did you mean 'full'? Known: all_of, any_of,"
                    " causal, chunked, dilated, fixed, full, global_tokens, not, per_head, prefix,"
                    " random_blocks, random_keys, sliding_window, strided."
                ),
                "attn.heads: must be at least 1; got 0.",
            ],
        ),
    ],
)
def test_faults_of_range_are_told_beside_those_of_type_and_choice(line, sentences):
    assert refused(line) == sentences


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("final_norm=layer", " Try model.final_norm=layer."),
        ("dropout=0.1", " Try attn.dropout=0.1, ffn.dropout=0.1 or model.dropout=0.1."),
        ("model.heads=4", " Try attn.heads=4."),
        ("seeds=3", " Did you mean 'seed'?"),
    ],
)
def test_a_key_in_the_wrong_place_is_answered_with_its_place(line, place):
    (sentence,) = refused(line)
    assert sentence.startswith(f"{line.partition('=')[0]}: the config has no such key.")
    assert place in sentence


def test_a_component_of_a_part_may_be_chosen_beside_its_options():
    lines = {
        "attn.gate=element attn.gate.rank=4": "attn.gate.name=element attn.gate.rank=4",
        "attn.gate.rank=4 model.decoder.attn.gate=element": (
            "attn.gate.rank=4 model.decoder.attn.gate=element"
        ),
        "+model.decoder.attn.gate=head model.decoder.attn.gate.of=both": (
            "model.decoder.attn.gate.name=head model.decoder.attn.gate.of=both"
        ),
        "attn.qk_norm.after=true attn.qk_norm=true": (
            "attn.qk_norm.after=true attn.qk_norm.name=head"
        ),
        "attn.score=softmax,sigmoid attn.score.softcap=3": (
            "attn.score.name=softmax,sigmoid attn.score.softcap=3"
        ),
        "position=rotary position.theta=500": "position=rotary position.theta=500",
        "model.decoder=null model.decoder.layers=2": "model.decoder=null model.decoder.layers=2",
    }
    assert {line: " ".join(expand(line.split())) for line in lines} == lines
    words = [
        "attn.gate=element",
        "attn.gate.rank=4",
        "attn.qk_norm=true",
        "attn.qk_norm.after=true",
    ]
    attn = compose(words)["attn"]
    assert (attn["gate"], attn["qk_norm"]) == (
        {"name": "element", "rank": 4},
        {"name": "head", "after": True},
    )
    assert refused("attn.qk_norm=l2 attn.qk_norm.after=1") == [
        "attn.qk_norm.after: must be true or false; got 1. Try false."
    ]


def test_a_group_may_be_given_a_mapping():
    line = [
        "position={name: rotary, theta: 500, scaling: {name: linear, factor: 2.0}}",
        "attn={heads: 4}",
        "seed=3",
    ]
    plain = [
        "position=rotary",
        "position.theta=500",
        "position.scaling={name:linear,factor:2.0}",
        "attn.heads=4",
        "seed=3",
    ]
    assert expand(line) == plain
    assert compose(line) == compose(plain)
    opened = [word if word == "position=rotary" else f"++{word}" for word in plain]
    assert preflight(line).argv == opened
    assert refused("attn={heads:7} model.dim=32") == refused("attn.heads=7 model.dim=32")
