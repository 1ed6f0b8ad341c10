"""Every fault of a config is one whole sentence, and all faults come at once, before anything is
built.
"""

import pytest
from refusals import refusals, refused

from xformer_kit import ConfigError, compose
from xformer_kit.config import compose as compose_config
from xformer_kit.config import preflight

HEADS = (
    "heads, kv_heads, head_dim, v_head_dim, bias, qk_norm, v_norm, clip, clip_normed, gate, scale,"
    " score, dropout, keys"
)
ONE_FAULT = {
    "attn.heads=7 model.dim=384": (
        "attn.heads: must divide model.dim; got 7 and 384. Try 3, 4, 6 or 8, or set attn.head_dim."
    ),
    "attn.kv_heads=3": "attn.kv_heads: must divide attn.heads; got 3 and 8. Try 1, 2, 4 or 8.",
    "attn.head=8": (
        f"attn.head: attn 'multi_head' has no option 'head'. Did you mean 'heads'? It has: {HEADS}."
    ),
    "+attn.foo=1": (
        f"attn.foo: attn 'multi_head' has no option 'foo'. It has: {HEADS}. Leave it out."
    ),
    "attn.qk_norm=true norm=none": (
        "attn.qk_norm: takes the norm of model.decoder, and 'none' does nothing. "
        "Choose norm=rms or norm=layer there, or attn.qk_norm=false."
    ),
    "model.decoder.attn.qk_norm=true model.decoder.norm.name=none": (
        "model.decoder.attn.qk_norm: takes the norm of model.decoder, and 'none' does nothing. "
        "Choose norm=rms or norm=layer there, or attn.qk_norm=false."
    ),
    "attn.qk_norm=true model.decoder.variants.a.norm=none model.decoder.pattern=[base,a]": (
        "attn.qk_norm: takes the norm of model.decoder.variants.a, and 'none' does nothing. "
        "Choose norm=rms or norm=layer there, or attn.qk_norm=false."
    ),
    "norm=none position=none model.decoder.layout=[{attn:{qk_norm:true}},ffn]": (
        "model.decoder.layout.attn.qk_norm: takes the norm of model.decoder, and 'none' does"
        " nothing. Choose norm=rms or norm=layer there, or attn.qk_norm=false."
    ),
    "attn=null": (
        "attn: must be a name; got null. Known: compositional, cosine, differential, distance,"
        " dot, exclusive, fourier, gated_delta, lambda, laser, latent, linear, linformer, mean,"
        " multi_head, nystrom, orthoformer, performer, persistent_memory, retention,"
        " short_conv."
    ),
    "position=rotary attn.head_dim=5": (
        "position: rotary turns pairs of channels, so attn.head_dim must be even; got 5. Try"
        " attn.head_dim=6, or position=none."
    ),
    "attn=dot model.dim=9": (
        "position: rotary turns pairs of channels, so model.dim must be even; got 9. Try"
        " model.dim=10, or position=none."
    ),
    "model.max_len=100": (
        "model.max_len: must be at least data.seq_len; got 100 and 128. null is data.seq_len."
    ),
    "data.valid_len=512": (
        "data.valid_len: must be at most model.max_len; got 512 and 128. Set model.max_len=512, or"
        " leave it null."
    ),
    "data.valid_len=0": "data.valid_len: must be at least 1 token; got 0.",
    "experiment=recall data.valid_len=32": (
        "data.valid_len: is about a text, and data=recall gives labelled. Leave it null."
    ),
    "model.vocab_size=100 tokenizer=byte": (
        "model.vocab_size: must hold the tokenizer's 256 tokens; got 100. null is the tokenizer's."
    ),
    "attn.scale=nan": "attn.scale: must be a finite number; got nan.",
    "attn.scale=0": "attn.scale: must be above 0; got 0. null is head_dim^-0.5.",
    "model.decoder.attn.scale=-0.5": (
        "model.decoder.attn.scale: must be above 0; got -0.5. null is head_dim^-0.5."
    ),
    "init.std=0": "init.std: must be above 0; got 0.",
    "init=lecun init.embedding=0": "init.embedding: must be above 0; got 0.",
    "norm.eps=inf": "norm.eps: must be a finite number; got inf. Try 1e-06.",
    "model.embed_scale=0": "model.embed_scale: must be above 0; got 0. Try 1.0 or sqrt_dim.",
    "model.embed_scale=sqrt": (
        "model.embed_scale: must be a number or sqrt_dim; got 'sqrt'. Try 1.0."
    ),
    "model.embed_scale=null": "model.embed_scale: must be a number or sqrt_dim; got null. Try 1.0.",
    "position=sinusoidal position.layout=interleave": (
        "position.layout: no choice is called 'interleave'. Did you mean 'interleaved'? Known:"
        " interleaved, concatenated."
    ),
    "model.dim=-4": "model.dim: must be at least 1; got -4.",
    "seed=9999999999999999999": (
        "seed: must be at most 9,223,372,036,854,775,807; got 9999999999999999999."
    ),
    "~seed": "seed: is missing; a config needs it. Its default is 0.",
    "~data": "data: a run needs one; it cannot be taken out. Name another.",
    "model=null": ("model: must be a name; got null. Known: decoder, encoder, encoder_decoder."),
    "resume=outputs/x": (
        "resume: is an instruction only of python train.py; got outputs/x. Leave it out."
    ),
    "components=[3]": (
        "components: must list Python files; got 3. Try components=[my_components.py]."
    ),
    "model.decoder.cross.heads=3": (
        "model.decoder.cross: attends to an encoder, and the model has none. Leave it out."
    ),
    "model.decoder.variants.x.mask=full": (
        "model.decoder.variants.x: no layer uses it. Name it in model.decoder.pattern, first or"
        " last, or leave it out."
    ),
    "position=none model.decoder.layout=[{attn:{heads:7}},ffn]": (
        "model.decoder.layout.attn.heads: must divide model.dim; got 7 and 128. Try 1, 2, 4 or 8,"
        " or set attn.head_dim."
    ),
    "model.decoder.layout=[[],ffn]": (
        "model.decoder.layout: an inner list runs sublayers in parallel and needs one; got []."
    ),
    "position=sinusoidal model.dim=9 attn.heads=1": (
        "position: sinusoidal pairs sines with cosines, so model.dim must be even; got 9."
    ),
    "mask=casual": (
        "mask: no mask is called 'casual'. Did you mean 'causal'? Known: all_of, any_of, causal,"
        " chunked, dilated, fixed, full, global_tokens, not, per_head, prefix, random_blocks,"
        " random_keys, sliding_window, strided."
    ),
    "mask=sliding_window mask.window=0": "mask.window: must be at least 1 token; got 0.",
    "mask=sliding_window mask.windw=3": (
        "mask.windw: mask 'sliding_window' has no option 'windw'. Did you mean 'window'? It has:"
        " window, causal."
    ),
    "mask.window=3": (
        "mask.window: mask 'causal' has no option 'window'. It has no options. Try"
        " mask=sliding_window or mask=dilated."
    ),
    "mask=all_of": (
        "mask.of: mask 'all_of' needs this option. Give it masks, such as [causal, sliding_window]."
    ),
    "mask=all_of mask.of=[]": ("mask.of: must not be empty; got []. Try [causal, sliding_window]."),
    "mask=all_of mask.of=[causal,{name:sliding_window,window:0}]": (
        "mask.of[1].window: must be at least 1 token; got 0."
    ),
    "mask=full": (
        "mask: mask 'full' sees the future, so language_modeling would read the token that it has"
        " to predict. Use mask=causal or mask=sliding_window."
    ),
    "ffn.width=-1": "ffn.width: must be at least 1 channel; got -1.",
    "ffn.width=64 ffn.expand=2": (
        "ffn.width: cannot be set together with ffn.expand; got 64 and 2. Set one of them to null."
    ),
    "ffn.width=64 ffn.multiple_of=8": (
        "ffn.width: cannot be set together with ffn.multiple_of; got 64 and 8. Set one of them to"
        " null."
    ),
    "ffn.activation=sine": (
        "ffn.activation: no choice is called 'sine'. Known: relu, relu2, gelu, gelu_tanh,"
        " gelu_quick, silu, tanh, sigmoid, mish, identity, star_relu, smelu, solu, elu, selu, celu,"
        " relu6, leaky_relu, softplus, softsign, softshrink, hardshrink, tanhshrink, hardtanh,"
        " hardsigmoid, hardswish, logsigmoid."
    ),
    "optim.lr=abc": "optim.lr: must be a number; got 'abc'. Try 0.002.",
    "optim=adamz": (
        "optim: no optim is called 'adamz'. Did you mean 'adam'? Known: adafactor, adam, adamw,"
        " adamw_8bit, lion, muon, schedule_free, sgd, soap."
    ),
    "schedule=cosin": (
        "schedule: no schedule is called 'cosin'. Did you mean 'cosine'? Known: constant, cosine,"
        " inverse_sqrt, linear, one_cycle, polynomial, wsd."
    ),
    "model.layers=0": "model.layers: must be at least 1; got 0.",
    "extra.future_tokens.count=1": "extra.future_tokens.count: must be at least 2 tokens; got 1.",
    "extra.future_tokens.count=300": (
        "extra.future_tokens.count: must be at most data.seq_len, or the last has no target; got"
        " 300 and 128."
    ),
    "extra.future_tokens.weight=0": "extra.future_tokens.weight: must be above 0; got 0.",
    "task=masked_language_modeling extra.future_tokens={}": (
        "extra.future_tokens: task 'masked_language_modeling' does not train its predictions. Leave"
        " it out, or choose task=language_modeling."
    ),
    "model=decodr": (
        "model: no choice is called 'decodr'. Did you mean 'decoder'? Known: decoder, encoder,"
        " encoder_decoder."
    ),
    "model.dropout=1.5": "model.dropout: must be at least 0 and below 1; got 1.5.",
    "trainer.max_steps=-5": "trainer.max_steps: must be at least 1; got -5.",
    "trainer.accumulate_grad_batches=4": (
        "trainer.accumulate_grad_batches: is decided by trainer.accumulate here; got 4. Try"
        " trainer.accumulate=4."
    ),
    "data.batch_size=0": "data.batch_size: must be at least 1 sequence; got 0.",
    "data.seqlen=3": (
        "data.seqlen: corpus 'pydoc' has no option 'seqlen'. Did you mean 'seq_len'? It has:"
        " seq_len, valid_len, batch_size, batch_tokens, too_long, documents, num_workers, seed,"
        " cache."
    ),
    "seed=x": "seed: must be a whole number; got 'x'. Try 0.",
    "seed=true": "seed: must be a whole number; got true. Try 0.",
    "name=a/b": "name: must be the name of a directory; got 'a/b'.",
    "attn.heads=2,4": (
        "attn.heads: several values are a sweep; got attn.heads=2,4. Compose one after the other,"
        " or quote a text with commas."
    ),
    "model.vocab_size=255 tokenizer=bpe": (
        "model.vocab_size: must hold the tokenizer's 256 tokens or more; got 255. null is the"
        " tokenizer's."
    ),
    "model.dim=true": "model.dim: must be a whole number; got true. Try 128.",
    "model.decoder.layout=attn": (
        "model.decoder.layout: must be a list of sublayers; got 'attn'. Sublayers: attn, cross,"
        " ffn."
    ),
    "model.decoder.pattern=[local,base]": (
        "model.decoder.pattern: no variant is called 'local'. Known: base."
    ),
    "model.decoder.first=[base,base] model.layers=1": (
        "model.decoder.first: must not be longer than the stack; got 2 and 1 layers."
    ),
    "model.layers=-1": "model.layers: must be at least 1; got -1.",
    "model.layers=0 model.decoder.first=[base]": "model.layers: must be at least 1; got 0.",
    "model.layers=true": "model.layers: must be a whole number; got true. Try 4.",
    "model.layers=x model.decoder.first=[base]": (
        "model.layers: must be a whole number; got 'x'. Try 4."
    ),
    "model.decoder.layers=-1": "model.decoder.layers: must be at least 1 block; got -1.",
    "model.decoder.layers=0 model.layers=1 model.decoder.last=[base,base]": (
        "model.decoder.layers: must be at least 1 block; got 0."
    ),
    "model.decoder.layers=1.5": "model.decoder.layers: must be a whole number or null; got 1.5.",
    "model.decoder.variants.local.mask={name:sliding_window,windo:3}": (
        "model.decoder.variants.local.mask.windo: mask 'sliding_window' has no option 'windo'. "
        "Did you mean 'window'? It has: window, causal."
    ),
    "model.decoder.variants.local.maks=3": (
        "model.decoder.variants.local.maks: the config has no such key. Did you mean 'mask'? "
        "It has: attn, mask, position, norm, placement, ffn, kernel, layout, cross."
    ),
    "model.decoder.variants.x.position=learned model.decoder.pattern=[x]": (
        "model.decoder.variants.x.position: 'learned' is added to the embeddings, which belong to"
        " the whole stack. Set it as position=learned."
    ),
    "model.decoder.mask.name=full": (
        "model.decoder.mask: mask 'full' sees the future, so language_modeling would read the token"
        " that it has to predict. Use mask=causal or mask=sliding_window."
    ),
    "model.decoder.layout=[attn,fnn]": (
        "model.decoder.layout: no sublayer is called 'fnn'. Did you mean 'ffn'? Known: attn, cross,"
        " ffn."
    ),
    "model.decoder.layout=[attn,cross]": (
        "model.decoder.layout: 'cross' attends to an encoder, and the model has none. Leave it out."
    ),
    "components=[no_such_file.py]": (
        "components: cannot read no_such_file.py: No such file or directory. Name a Python file"
        " that registers components."
    ),
}


test_one_fault_is_one_sentence = refusals(ONE_FAULT)


def test_an_unknown_key_is_answered_with_the_nearest():
    for word in ("modle.dim=3", "+modle.dim=3", "++modle.dim=3"):
        assert refused(word) == ["modle.dim: the config has no such key. Try model.dim=3."]
    fault = "modle: the config has no such key. Did you mean 'model'? It has: attn, "
    (sentence,) = refused("modle.wheels=4 modle.dim=3")  # one of its keys is known nowhere
    assert sentence.startswith(fault)
    assert refused("train.max_steps=5 train.max_norm=1 eval.interval=9") == [
        "train.max_steps: the config has no such key. Try trainer.max_steps=5.",
        "train.max_norm: is called trainer.gradient_clip_val here; got 1. Try"
        " trainer.gradient_clip_val=1.",
        "eval.interval: is called trainer.val_every here; got 9. Try trainer.val_every=9.",
    ]


def test_all_faults_come_at_once():
    faults = refused("attn.heads=7 modle.dim=3 mask=casual optim.lr=abc ffn.width=-1 attn.heads=[1")
    starts = [fault.split(":")[0] for fault in faults]
    assert sorted(starts) == [
        "attn.heads",
        "attn.heads=[1",
        "ffn.width",
        "mask",
        "modle.dim",
        "optim.lr",
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        "model=decoder attn.heads=8",
        (
            "attn.kv_heads=2 position=alibi norm=layer placement=post ffn=mlp ffn.width=512"
            " mask=sliding_window mask.window=64"
        ),
        "model.decoder.mask.name=sliding_window",
        "model.decoder.mask=sliding_window",
        "model.decoder.attn.heads=4 model.decoder.layers=3",
        "model.decoder.variants.local.mask.name=sliding_window model.decoder.pattern=[local,base]",
        "mask=all_of mask.of=[causal,{name:not,of:{name:sliding_window,window:2}}]",
        "model.decoder.layout=[[attn,ffn]] placement.shared=false",
        "optim.lr=1 trainer.max_steps=1",
    ],
)
def test_what_a_user_would_write_is_accepted(overrides):
    assert compose(overrides.split())["model"]["decoder"] is not None


def test_the_command_line_wins_over_what_the_model_sets():
    with pytest.raises(ConfigError, match="mask 'full' sees the future"):
        compose(["mask=full", "model=decoder"])


def test_composing_twice_gives_equal_configs_of_plain_values():
    def leaves(value):
        if isinstance(value, dict):
            return {type(k) for k in value} | {t for v in value.values() for t in leaves(v)}
        return {type(value)} | (
            {t for v in value for t in leaves(v)} if isinstance(value, list) else set()
        )

    a, b = compose(["attn.heads=4"]), compose(["attn.heads=4"])
    assert a == b
    assert leaves(a) <= {str, int, float, bool, type(None), list}
    assert "resume" not in a
    assert "components" not in a
    assert "hydra" not in a


def test_a_norm_of_queries_and_keys_goes_with_the_stack_own_norm():
    words = ["norm=none", "model.decoder.norm=rms", "model.decoder.attn.qk_norm=true"]
    config = compose(["model=encoder_decoder", "task=seq2seq", "data=scan", *words])
    assert (config["norm"]["name"], config["model"]["decoder"]["norm"]) == ("none", "rms")


def test_faults_outside_the_model_stand_next_to_those_of_the_composition():
    with pytest.raises(ConfigError) as error:
        compose(["optim.lr=-1", "schedule.warmup=-3", "attn.v_norm=head", "norm=none"])
    assert [fault.path for fault in error.value.faults] == [
        "optim.lr",
        "schedule.warmup",
        "attn.v_norm",
    ]


@pytest.mark.parametrize("word", ["data.batch_size=0", "data.seq_len=0"])
def test_sizes_of_batches_are_checked_also_without_a_corpus(word):
    """A model is described on a machine without its data."""
    compose_config(["data=text"], data=False)
    with pytest.raises(ConfigError, match=rf"^{word[:-2]}: must be at least 1"):
        compose_config(["data=text", word], data=False)


@pytest.mark.parametrize(
    ("word", "fix"), [("model.name=encoder", "Try model=encoder."), ("ema.name=x", "Leave it out.")]
)
def test_a_node_of_settings_has_no_name(word, fix):
    with pytest.raises(ConfigError) as error:
        compose_config([word])
    path, _, value = word.partition("=")
    assert error.value.messages == (f"{path}: the config has no such key; got {value}. {fix}",)


def test_a_study_is_no_component():
    """nope is a name of a position encoding."""
    with pytest.raises(ConfigError) as error:
        preflight(["study=nope"])
    assert "position=nope" not in str(error.value) and "Known: " in str(error.value)
