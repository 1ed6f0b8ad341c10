"""An option that changes nothing is refused, and changes nothing; one that is not refused does."""

import pytest
from refusals import refusals

from tests.config.effects import effects
from xformer_kit import compose

SEQ2SEQ = "model=encoder_decoder task=seq2seq data=scan"
ENCODER = "model=encoder task=masked_language_modeling position=learned data.seq_len=16"
NONE_LATER = (
    "'residual' adds the scores of an earlier attention with as many heads and keys, and"
    " there is none, nor a later one that takes these."
)
TURNED = (
    "attn.qk_norm.after: puts the norm after a rotation, and position '{}' does not rotate; got"
    " true. Set it to false, or"
)
REFUSED = {
    "attn.score=residual model.layers=1": (
        f"attn.score: {NONE_LATER} Try model.layers=2, or softmax."
    ),
    "model.decoder.variants.a.attn.score=residual model.decoder.last=[a]": (
        f"model.decoder.variants.a.attn.score: {NONE_LATER} Set it to softmax."
    ),
    "attn.qk_norm=l2 attn.qk_norm.after=true position=alibi": (
        f"{TURNED.format('alibi')} choose position=rotary."
    ),
    f"{SEQ2SEQ} position=rotary model.decoder.cross.qk_norm={{name:head,after:true}}": (
        f"model.decoder.cross.{TURNED.format('none').removeprefix('attn.')} choose position=rotary."
    ),
    "placement.shared=false": (
        "placement.shared: gives each of several parallel sublayers its own norm, and none"
        " run in parallel; got false. Leave it true, or put two into an inner list of the layout:"
        " [[attn, ffn]]."
    ),
    "position=alibi position.symmetric=false": (
        "position.symmetric: affects only later tokens, and mask=causal hides them; got false."
        " Leave it true."
    ),
    "position=alibi position.symmetric=false mask=chunked": (
        "position.symmetric: affects only later tokens, and mask=chunked hides them; got false."
        " Leave it true."
    ),
    "position=alibi position.slopes=geometric attn.heads=8": (
        "position.slopes: applies if attn.heads is not a power of two, and it is one;"
        " got 'geometric' and 8. Leave it 'press'."
    ),
    "attn=compositional attn.retrievals=1 attn.choice_dim=4": (
        "attn.choice_dim: is where one of several retrievals is chosen, and attn.retrievals is 1;"
        " got 4. Leave it null, or try attn.retrievals=2."
    ),
    f"{ENCODER} attn=orthoformer attn.landmarks=20": (
        "attn.landmarks: position 'learned' ends at model.max_len=16 tokens, and a text has no more"
        " landmarks than tokens; got 20. Try 4, or model.max_len=20."
    ),
    "ffn=moe ffn.router.capacity=4": (
        "ffn.router.capacity: from ffn.experts / ffn.top_k = 4 on, every expert may compute all"
        " tokens; got 4. Set it to null."
    ),
    "ffn=moe ffn.top_k=8 ffn.router={name:sigmoid,capacity:1.5}": (
        "ffn.router.capacity: from ffn.experts / ffn.top_k = 1 on, every expert may compute all"
        " tokens; got 1.5. Set it to null."
    ),
    "ffn=moe ffn.router.groups=4 ffn.router.group_limit=4": (
        "ffn.router.groups: a token may choose from all groups, as ffn.router.group_limit is their"
        " number; got 4. Leave groups and group_limit 1, and group_score max."
    ),
    "ffn=moe ffn.router.group_score=top2": (
        "ffn.router.group_score: a token may choose from all groups, as ffn.router.group_limit is"
        " their number; got 'top2'. Leave groups and group_limit 1, and group_score max."
    ),
    "ffn=moe ffn.router.groups=4 ffn.router.group_limit=2": (
        "ffn.router.groups: the best ffn.top_k=2 experts are of the best ffn.router.group_limit=2"
        " groups, whose best they are; got 4. Try ffn.router.group_score=top2, or 1 group and a"
        " group_limit of 1."
    ),
}


test_refused_configs = refusals(REFUSED)


KEPT = [  # it has an effect somewhere in what takes it from this place
    "extra.value_residual.mix=token model.layers=2",
    "extra.value_residual.mix=token model.unique_layers=2",
    "extra.value_residual={} model.unique_layers=1",
    "extra.value_residual={} model.decoder.variants.a.attn.heads=4 model.decoder.first=[a]",
    f"{SEQ2SEQ} extra.value_residual={{}} model.encoder.layers=1",
    "attn.score=residual model.unique_layers=1",
    "attn.score=residual model.layers=1 model.decoder.layout=[attn,attn,ffn]",
    f"{SEQ2SEQ} position=rotary attn.qk_norm={{name:head,after:true}}",
    (
        "attn.qk_norm={name:l2,after:true} model.decoder.variants.a.position=none"
        " model.decoder.pattern=[base,a]"
    ),
    (
        "attn=compositional attn.choice_dim=4 model.decoder.variants.a.attn.retrievals=1"
        " model.decoder.first=[a]"
    ),
    f"{ENCODER} attn=orthoformer",  # landmarks are only a default
    # a text may be longer than those of the training
    f"{ENCODER} attn=nystrom attn.landmarks=20 position=rotary",
    "ffn=moe ffn.router.capacity=3.9",
    "ffn=moe ffn.router={name:sigmoid,groups:4,group_limit:3,group_score:top2}",
    (
        "attn={name:exclusive,over:all} attn.heads=1 model.decoder.variants.a.attn.heads=4"
        " model.decoder.last=[a]"
    ),
]


@pytest.mark.parametrize("words", KEPT)
def test_an_option_that_changes_results_is_accepted(words):
    compose(words.split())


FIXES = {
    "attn.score=residual model.layers=1": ["model.layers=2", "attn.score=softmax"],
    "attn.qk_norm={name:l2,after:true} position=alibi": ["attn.qk_norm=l2", "position=rotary"],
    "attn=compositional attn.retrievals=1 attn.choice_dim=4": [
        "attn.choice_dim=null",
        "attn.retrievals=2",
    ],
    f"{ENCODER} attn=orthoformer attn.landmarks=20": ["attn.landmarks=4", "model.max_len=20"],
    "ffn=moe ffn.router.capacity=4": ["ffn.router.capacity=null", "ffn.router.capacity=1.25"],
    "ffn=moe ffn.top_k=8 ffn.router.capacity=1.5": ["ffn.router.capacity=0.8"],
}


@pytest.mark.parametrize("words", FIXES)
def test_each_proposed_fix_composes(words):
    for fix in FIXES[words]:
        keys = {word.partition("=")[0] for word in fix.split()}
        compose(
            [word for word in words.split() if word.partition("=")[0] not in keys] + fix.split()
        )


def normed(after, position):
    return {
        "attn": {"name": "multi_head", "qk_norm": {"name": "head", "after": after}},
        "position": position,
    }


def scored(name, layers):
    return {"attn": {"name": "multi_head", "score": name}, "layers": layers}


def projected(over, heads):
    return {
        "attn": {
            "name": "exclusive",
            "heads": heads,
            "kv_heads": 1,
            "over": over,
        }
    }


def held(capacity, top_k):
    return {
        "ffn": {"name": "moe", "top_k": top_k, "router": {"name": "softmax", "capacity": capacity}}
    }


def grouped(**options):
    return {"ffn": {"name": "moe", "experts": 6, "router": {"name": "softmax", **options}}}


def marked(landmarks):
    return {
        "model": "encoder",
        "position": "learned",
        "attn": {"name": "orthoformer", "landmarks": landmarks},
    }


PAIRS = [  # compositions with an option and without, and whether the first is refused
    (scored("residual", 1), scored("softmax", 1), True),
    (scored("residual", 2), scored("softmax", 2), False),
    (
        scored("residual", 2) | {"unique_layers": 1},
        scored("softmax", 2) | {"unique_layers": 1},
        False,
    ),
    (normed(True, "learned"), normed(False, "learned"), True),
    (normed(True, "rotary"), normed(False, "rotary"), False),
    (projected("all", 1), projected("head", 1), True),
    (projected("all", 6), projected("head", 6), False),
    (held(2.5, 2), held(None, 2), True),  # of 5 experts
    (held(2.0, 2), held(None, 2), False),
    (grouped(groups=3, group_limit=3), grouped(), True),
    (grouped(groups=3, group_limit=2), grouped(), True),
    (grouped(groups=3, group_limit=1), grouped(), False),
    (grouped(group_score="top2"), grouped(), True),
    (marked(200), marked(29), True),
    (marked(7), marked(29), False),
]


test_an_option_is_refused_if_it_changes_no_output = effects(PAIRS)
