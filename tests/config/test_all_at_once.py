"""All faults of a config are reported at once, without those that only follow from another."""

import pytest
from refusals import refusals

from xformer_kit import ConfigError, compose
from xformer_kit.config import check, preflight
from xformer_kit.plan import KINDS

HEADS = "must divide model.dim; got 7 and 128. Try 1, 2, 4 or 8, or set attn.head_dim."
DROPOUT = "model.dropout: must be at least 0 and below 1; got 3."

OTHER_NAMES = {
    "attn=mha attn.heads=7 model.dropout=3": f"attn.heads: {HEADS}\n{DROPOUT}",
    "attn={name:mha,heads:7}": f"attn.heads: {HEADS}",
    "model.decoder.attn={name:mha,heads:7}": f"model.decoder.attn.heads: {HEADS}",
    "model.decoder.ffn=swiglu model.decoder.ffn.width=-1": (
        "model.decoder.ffn.width: must be at least 1 channel; got -1."
    ),
    "attn.score=softmax1 attn.score.softcap=-1": (
        "attn.score: no score is called 'softmax1'. Did you mean 'softmax'? Known: cog, entmax,"
        " gumbel, hard, inverted, relu2, residual, selective, sigmoid, softmax, talking_heads,"
        " top_k."
    ),
    "extra.drop_path.rate=3": (
        "extra.stochastic_depth.rate: must be at least 0 and below 1; got 3."
    ),
}


test_another_name_hides_no_fault = refusals(OTHER_NAMES)


@pytest.mark.extended
def test_a_run_to_start_from_that_is_none_hides_no_fault_and_is_not_hidden(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for word, start in {
        "attn.heads=7": "attn.heads: must divide",
        "attn=multi": "attn: no attn is called",
        "tokenizer=nope": "tokenizer: no tokenizer is called",
        "trainer.max_stps=3": "trainer.max_stps: ",
        "init_from.allow=3": "init_from.allow: ",
    }.items():
        with pytest.raises(ConfigError) as error:
            preflight([word, "init_from=nowhere"])
        first, source = error.value.messages
        assert first.startswith(start)
        assert source.startswith("init_from.run: must be a run's directory")
    with pytest.raises(ConfigError) as error:
        preflight(["init_from={run: [1]}"])
    assert [message.partition(":")[0] for message in error.value.messages] == ["init_from.run"]


def test_another_name_in_a_sweep_hides_no_fault():
    with pytest.raises(ConfigError) as error:
        preflight(["-m", "attn=mha,linear", "attn.heads=7,8"])
    assert list(error.value.messages) == [
        f"attn.heads: {HEADS} [job attn=mha attn.heads=7]",
        f"attn.heads: {HEADS} [job attn=linear attn.heads=7]",
    ]


FOLLOWING = {
    "attn.heads=7 model.decoder.attn.bias=true": f"attn.heads: {HEADS}",
    "attn.heads=7 model.decoder.attn.kv_heads=2": f"attn.heads: {HEADS}",
    "attn.heads=7 model.decoder.attn.bias=3": f"attn.heads: {HEADS}",
    "mask=sliding_window mask.window=0 model.decoder.mask.causal=false": (
        "mask.window: must be at least 1 token; got 0."
    ),
}


test_a_difference_does_not_repeat_the_faults_of_what_it_differs_from = refusals(FOLLOWING)


MEAN = (
    "attn: mean has no queries and keys, with which position 'rotary' works. Choose"
    " position=learned, alibi or none."
)
SIGNED = (
    "attn: 'laser' takes the logarithm of a sum with weights, of which attn.score 'cog' may make"
    " some negative. Choose attn.score=softmax."
)
FUTURE = (
    "mask: mask 'full' sees the future, so language_modeling would read the token that it has to"
    " predict. Use mask=causal or mask=sliding_window."
)
NO_ENCODER = (
    "task: 'language_modeling' cannot train a model of encoder, only of decoder. Choose"
    " task=masked_language_modeling or model=decoder."
)
TOGETHER = {
    "attn=mean optim.lr=-1": f"optim.lr: must be above 0; got -1. Try 1e-3.\n{MEAN}",
    "mask=full schedule.warmup=-1": f"schedule.warmup: must be at least 0 steps; got -1.\n{FUTURE}",
    "model=encoder task=language_modeling ema.decay=2": (
        f"ema.decay: must be at least 0 and below 1; got 2.\n{NO_ENCODER}"
    ),
    "attn=laser attn.score=cog lora.rank=0": f"lora.rank: must be at least 1; got 0.\n{SIGNED}",
}


test_faults_of_the_composition_are_reported_with_those_of_other_nodes = refusals(TOGETHER)


UNKNOWN = {
    # The composition depends on the value at fault.
    "attn=laser attn.score=cog attn.heads=7": f"attn.heads: {HEADS}",
    "attn=linear mask=sliding_window mask.window=0": (
        "mask.window: must be at least 1 token; got 0."
    ),
    "attn=mean model.layers=0": "model.layers: must be at least 1; got 0.",
    "attn=mean model.dropout=3": DROPOUT,
    # Or on what may have been meant.
    "attn=fourier position=rott": (
        "position: no position is called 'rott'. Did you mean 'rotary'? Known: alibi, cope, curves,"
        " disentangled, dynamic, fire, forgetting, kerple, learned, none, polar, rotary, shaw,"
        " sinusoidal, t5, transformer_xl, xpos."
    ),
    "attn=fourier positon=none": (
        "positon: the config has no such key. Did you mean 'position'? It has: attn, callbacks,"
        " checkpoints, data, ema, extra, ffn, init, init_from, kernel, logger, lora, mask, metrics,"
        " model,"
        " name, norm, optim, placement, position, schedule, seed, task, tokenizer, trainer."
    ),
    "model=encoder task=mlmm": (
        "task: no objective is called 'mlmm'. Did you mean 'mlm'? Known: classification,"
        " denoising, language_modeling, masked_language_modeling, mixture_of_denoisers,"
        " prefix_language_modeling, regression, seq2seq, text_infilling."
    ),
}
SWEEP = (
    "several values are a sweep; got {}. Compose one after the other, or quote a text with commas."
)
UNKNOWN |= {
    "attn=linear,latent attn.kv_rank=3 mask=full": f"attn: {SWEEP.format('attn=linear,latent')}",
    "model=encodr task=masked_language_modeling": (
        "model: no choice is called 'encodr'. Did you mean 'encoder'? Known: decoder, encoder,"
        " encoder_decoder."
    ),
}


test_what_depends_on_a_fault_is_not_reported = refusals(UNKNOWN)


@pytest.mark.parametrize("value", ["nonsense", -1, float("nan"), [], {}, None, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_wrong_value_makes_no_other_fault(kind, value):
    """Of each option of each component, in a model that is refused for another reason."""
    config = compose(["logger=none"])
    other = "mask" if kind == "attn" else "attn"
    config[other] = KINDS[other].defaults({"mask": "full", "attn": "mean"}[other])
    for name in KINDS[kind]:
        composed = config | {kind: KINDS[kind].defaults(name)}
        of_default = set(check(composed, data=False))
        for option in KINDS[kind].options(name):
            found = check(composed | {kind: composed[kind] | {option: value}}, data=False)
            new = {fault.path for fault in found if fault not in of_default}
            own = {path for path in new if f"{path}.".startswith(f"{kind}.{option}")}
            assert not own or own == new, f"{kind} {name}.{option}={value}"
