"""An option that no layer takes is refused wherever it is set; one that a layer takes is not."""

import pytest
from refusals import refused

from tests.config.effects import effects
from xformer_kit import compose
from xformer_kit.plan import KINDS

SEQ2SEQ = "model=encoder_decoder task=seq2seq data=scan"
A = "model.decoder.variants.a="
MIXED = f"model.decoder.pattern=[a,base] {A}"
NO_NETWORK, NO_ATTENTION = "no layer has a feed-forward network", "no layer has an attention"
OTHERS = "no layer uses it, because each has its own"
REFUSED = {
    "model.decoder.layout=[attn] ffn.width=999": (
        f"ffn.width: {NO_NETWORK}; got 999. Leave it null."
    ),
    "model.decoder.layout=[attn] ffn=moe": f"ffn: {NO_NETWORK}. Leave it out.",
    "model.decoder.layout=[attn] ffn=moe ffn.expert=mlp": (
        f"ffn.expert: {NO_NETWORK}; got 'mlp'. Leave it 'glu'."
    ),
    "model.decoder.layout=[attn] model.decoder.ffn=moe": (
        "model.decoder.ffn: no layer of the decoder has a feed-forward network; got 'moe'. Leave it"
        " out."
    ),
    "model.decoder.layout=[ffn] attn.heads=2": f"attn.heads: {NO_ATTENTION}; got 2. Leave it 8.",
    "model.decoder.layout=[ffn] attn.score=entmax": (
        f"attn.score: {NO_ATTENTION}; got 'entmax'. Leave it 'softmax'."
    ),
    "model.decoder.layout=[ffn] attn.score.softcap=3": (
        f"attn.score.softcap: {NO_ATTENTION}; got 3. Leave it null."
    ),
    "model.decoder.layout=[ffn] position=alibi": (
        f"position: {NO_ATTENTION} to its own stack. Leave it out."
    ),
    "model.decoder.layout=[ffn] kernel=reference": f"kernel: {NO_ATTENTION}. Leave it out.",
    f"model.decoder.pattern=[a] {A}{{position:none}} position.theta=5": (
        f"position.theta: {OTHERS}; got 5. Leave it 10000.0."
    ),
    f"model.decoder.pattern=[a] {A}{{attn:{{heads:2}}}} attn.heads=4": (
        f"attn.heads: {OTHERS}; got 4. Leave it 8."
    ),
    # a pattern that nothing is left for
    f"model.layers=2 model.decoder.first=[a,a] {A}{{attn:{{heads:2}}}} attn.heads=4": (
        f"attn.heads: {OTHERS}; got 4. Leave it 8."
    ),
    (
        f"{SEQ2SEQ} model.encoder.pattern=[a] "
        f"model.encoder.variants.a={{attn:{{heads:2}}}} model.encoder.attn.heads=8"
    ): (
        "model.encoder.attn.heads: no layer of the encoder uses it, because each has its own; got"
        " 8. Leave it out."
    ),
    "attn=latent attn.kv_rank=8 model.decoder.attn=multi_head": (
        f"attn.kv_rank: {OTHERS}; got 8. Leave it null."
    ),
    "placement=sandwich model.decoder.placement=post": f"placement: {OTHERS}. Leave it out.",
    "placement=none norm.eps=0.001": "norm.eps: no layer has a norm; got 0.001. Leave it 1e-06.",
    "placement=none norm=layer": "norm: no layer has a norm. Leave it out.",
    f"{SEQ2SEQ} model.encoder.layout=[ffn] model.encoder.mask=full": (
        "model.encoder.mask: no layer of the encoder has an attention to its own stack. Leave it"
        " out."
    ),
    f"{MIXED}{{ffn:{{width:99}},layout:[attn]}}": (
        "model.decoder.variants.a.ffn.width: no layer of the decoder's variant 'a' has a"
        " feed-forward network; got 99. Leave it out."
    ),
    f"{MIXED}{{position:alibi,layout:[ffn]}}": (
        "model.decoder.variants.a.position: no layer of the decoder's variant 'a' has an attention"
        " to its own stack; got 'alibi'. Leave it out."
    ),
    f"{SEQ2SEQ} {MIXED}{{cross:{{heads:2}},layout:[attn,ffn]}}": (
        "model.decoder.variants.a.cross.heads: there is no cross attention in a layer of the"
        " decoder's variant 'a'; got 2. Leave it out."
    ),
    f"{SEQ2SEQ} model.decoder.attn.heads=2 model.encoder.attn.heads=2 attn.heads=4": (
        f"attn.heads: {OTHERS}; got 4. Leave it 8."
    ),
    f"model.decoder.pattern=[a] attn.heads=4 model.decoder.attn.heads=8 {A}{{attn:{{heads:2}}}}": (
        f"attn.heads: {OTHERS}; got 4. Leave it 8.",
        "model.decoder.attn.heads: no layer of the decoder uses it, because each has its own; got"
        " 8. Leave it out.",
    ),
    "placement=none model.decoder.layout=[{attn:{norm:layer}},ffn]": (
        "model.decoder.layout.attn.norm: no such sublayer has a norm; got 'layer'. Leave it out."
    ),
    f"{SEQ2SEQ} placement=none model.decoder.cross.norm=layer": (
        "model.decoder.cross.norm: no cross attention in a layer of the decoder has a norm; got"
        " 'layer'. Leave it out."
    ),
    f"model.decoder.pattern=[a] model.decoder.layout=[attn] {A}{{layout:[attn,ffn]}}": (
        "model.decoder.layout: no layer uses it, because each variant has its own; got"
        " ['attn']. Leave it out."
    ),
    "attn=linear attn.normalise=false attn.eps=0.01": (
        "attn.eps: is added to the sum of weights, by which normalise=false does not divide; got"
        " 0.01. Leave it out."
    ),
    "placement=normformer placement.scale_residual=true model.decoder.layout=[attn]": (
        "placement.scale_residual: scales the stream that a feed-forward network is added to, and"
        " no layer has one; got true. Set it to false."
    ),
    "ffn=moe ffn.top_k=4 ffn.experts=4 ffn.router.correction=0.1": (
        "ffn.router.correction: chooses a token's experts, and with ffn.top_k=4 it takes them all;"
        " got 0.1. Set it to null, or fewer ffn.top_k."
    ),
    "model.decoder.layout=[{attn:{kernel:sdpa}},ffn]": (
        "model.decoder.layout.attn.kernel: is of whole layers; got 'sdpa'. Set it for the stack,"
        " or in a variant."
    ),
    "model.decoder.pattern=[]": (
        "model.decoder.pattern: must not be empty; got []. null is [base]."
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_faults_have_the_expected_sentences(words):
    sentences = REFUSED[words]
    assert refused(words) == ([sentences] if isinstance(sentences, str) else [*sentences])


KEPT = [
    # a component that no layer has is not checked
    f"{SEQ2SEQ} attn=gated_delta model.encoder.layout=[ffn] model.decoder.cross=multi_head",
    "model.dim=100 attn.heads=4 model.decoder.layout=[{attn:{head_dim:12}},ffn]",
    f"attn=lambda model.decoder.pattern=[a] {A}{{position:none}}",
    "norm=none attn.qk_norm=true model.decoder.layout=[{attn:{norm:rms}},ffn]",
    "model.decoder.attn.heads=8",  # as it was
    "model.sharing=cycle model.unique_layers=1",  # the Universal Transformer, in whatever order
    "placement=normformer placement.scale_residual=true",
    "model.decoder.layout=[attn]",  # the network is only a default
    # nor for the mask, which model=encoder_decoder chooses
    f"{SEQ2SEQ} model.encoder.layout=[ffn]",
    "model.decoder.layout=[ffn] position=learned position.offset=2",  # which embeds
    f"{MIXED}{{position:none}} position.theta=5",
    f"{MIXED}{{attn:{{score:{{sinks:true}}}}}} attn.score.softcap=3",
    # laid under it
    f"model.decoder.pattern=[a] {A}{{attn:{{score:{{sinks:true}}}}}} attn.score.softcap=3",
    # heads carry over to another component
    f"model.decoder.pattern=[a] {A}{{attn:linear}} attn.heads=4",
    f"{SEQ2SEQ} model.decoder.attn.heads=2 attn.heads=4",
    f"{SEQ2SEQ} model.decoder.layout=[cross,ffn] attn.heads=4",
    "placement=none norm.eps=0.001 model.final_norm=true",
    "placement=none norm.eps=0.001 attn.qk_norm=true",
    "placement=none norm.eps=0.001 ffn.inner_norm=true",
    "placement=none norm.eps=0.001 attn.v_norm=head",
    "model.decoder.layout=[attn,{ffn:{width:96}}] ffn.bias=true",
    "model.decoder.layout=[attn,ffn,{ffn:{width:96}}] ffn.width=80",
]


@pytest.mark.parametrize("words", KEPT)
def test_options_that_a_layer_uses_are_accepted(words):
    compose(words.split())


def bare(kind, name, **options):
    """A component with its defaults, not those of a tiny model, and these options."""
    return {kind: KINDS[kind].defaults(name) | options}


NETWORKLESS = {"decoder": {"layout": ["attn"]}}
PATTERN = {"decoder": {"pattern": ["a"], "variants": {"a": {"position": "none"}}}}
PAIRS = [  # a composition with an option and without, and whether the first is refused
    (NETWORKLESS | bare("ffn", "mlp", width=99), NETWORKLESS | bare("ffn", "mlp"), True),
    (bare("ffn", "mlp", width=99), bare("ffn", "mlp"), False),
    (PATTERN | bare("position", "rotary", theta=5.0), PATTERN | bare("position", "rotary"), True),
    (bare("position", "rotary", theta=5.0), bare("position", "rotary"), False),
    (
        {"placement": "none"} | bare("norm", "rms", eps=0.1),
        {"placement": "none"} | bare("norm", "rms"),
        True,
    ),
    (bare("norm", "rms", eps=0.1), bare("norm", "rms"), False),
]


test_an_option_is_refused_if_it_changes_no_output = effects(PAIRS)
