"""A config that is nested mappings: it composes, and is refused, like the same command line."""

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from tests.python_configs import BERT, GEMMA3, GPT2, MACARON, MODELS
from xformer_kit import ConfigError, build, compose
from xformer_kit.config import preflight

LINES = (
    (
        GPT2,
        "model.dim=768 model.layers=12 model.max_len=1024 model.dropout=0.1 attn.heads=12"
        " attn.bias=true attn.dropout=0.1 position=learned norm=layer ffn=mlp ffn.width=3072"
        " ffn.bias=true ffn.activation=gelu_tanh",
    ),
    (
        GEMMA3,
        "model.dim=1152 model.layers=26 model.embed_scale=sqrt_dim"
        " model.decoder.pattern=[local,local,local,local,local,base]"
        " model.decoder.variants={local:{mask:{name:sliding_window,window:512},"
        "position:{theta:10000}}}"
        " attn.heads=4 attn.kv_heads=1 attn.head_dim=256 attn.qk_norm=head"
        " position.theta=1000000 norm=rms norm.unit_offset=true placement=sandwich"
        " ffn=glu ffn.width=6912 ffn.activation=gelu_tanh",
    ),
    (MACARON, "model.decoder.layout=[{ffn:{multiplier:0.5}},attn,{ffn:{multiplier:0.5}}]"),
    ({"attn": {"gate": {"name": "head", "of": "both"}}}, "attn.gate=head attn.gate.of=both"),
    ({"model": {"dim": 64, "name": "encoder"}}, "model=encoder model.dim=64"),
    ({"trainer": {"name": "ddp", "devices": 2}}, "trainer=ddp trainer.devices=2"),
    ({"attn.heads": 4, "extra": {"token_shift": {}}}, "attn.heads=4 extra.token_shift={}"),
)


@pytest.mark.parametrize(("mapping", "line"), LINES, ids=[line[:40] for _, line in LINES])
def test_a_mapping_composes_as_its_line(mapping, line):
    assert compose(mapping) == compose(line.split())


def test_a_text_is_the_value_that_it_is():
    for text in ("a, b", "${c}", "1e3", "it's", "true"):
        assert compose({"name": text})["name"] == text


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_the_same_as_a_mapping_a_dictconfig_and_a_composed_config(model):
    config = compose(MODELS[model])
    assert compose(OmegaConf.create(MODELS[model])) == config
    assert compose(config) == config
    assert compose(OmegaConf.create(config)) == config


def test_a_complete_config_keeps_its_stacks():
    """The defaults of the task have another one."""
    words = ["model=decoder", "task=classification", "task.classes=[a,b]", "data=tsv"]
    config = compose([*words, "data.path=some.tsv"], data=False)
    assert compose(config, data=False) == config


# model -> tokens, parameters of the published one
PUBLISHED = {
    "llama3": (128_256, 8_030_261_248),
    "gemma3": (262_144, 999_885_952),
    "t5": (32_128, 60_506_624),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_published_model_has_its_number_of_parameters(model):
    vocab_size, count = PUBLISHED[model]
    with torch.device("meta"):
        built = build(MODELS[model], vocab_size)
    assert sum(parameter.numel() for parameter in built.parameters()) == count


FAULTS = (
    ({"attn": {"heads": 7}}, "attn.heads=7"),
    ({"attn": {"head": 8}}, "attn.head=8"),
    ({"attn": {"heads": "8"}}, "attn.heads='8'"),
    ({"mask": {"name": "casual", "window": 3}}, "mask=casual mask.window=3"),
    ({"model": {"d_model": 512}}, "model.d_model=512"),
    ({"d_model": 512, "optim": {"lr": -1}}, "d_model=512 optim.lr=-1"),
    ({"model": {"decoder": {"layout": [["attn", "fn"]]}}}, "model.decoder.layout=[[attn,fn]]"),
    ({"ffn": None}, "ffn=null"),
)


@pytest.mark.parametrize(("mapping", "line"), FAULTS, ids=[line for _, line in FAULTS])
def test_a_faulty_mapping_has_the_sentences_of_its_line(mapping, line):
    errors = []
    for config in (line.split(), mapping, OmegaConf.create(mapping)):
        with pytest.raises(ConfigError) as error:
            compose(config)
        errors.append(error.value.messages)
    with pytest.raises(ConfigError) as error:
        build(mapping, 65)
    assert errors == [errors[0]] * 3
    assert error.value.messages == errors[0]


NOT_PLAIN = (
    ({"attn": {"dropout": torch.zeros(1)}}, "attn.dropout: must be plain data: a number, a text,"),
    ({"attn": {3: 4}}, "attn.3: the keys of a config are names; got 3."),
    ({"+attn": {}}, "+attn: the keys of a config are names; got '+attn'."),
    (OmegaConf.create({"seed": "${seeds}"}), "seed: cannot be resolved: Interpolation key 'seeds'"),
)


@pytest.mark.parametrize(("config", "sentence"), NOT_PLAIN, ids=[text for _, text in NOT_PLAIN])
def test_what_no_config_can_hold_is_refused_with_its_path(config, sentence):
    for function in (compose, lambda config: build(config, 65)):
        with pytest.raises(ConfigError) as error:
            function(config)
        assert error.value.messages[0].startswith(sentence)


def test_numbers_and_tuples_of_python_are_values():
    config = compose({"attn": {"heads": np.int64(4)}, "optim": {"betas": (0.9, 0.95)}})
    assert config == compose(["attn.heads=4", "optim.betas=[0.9,0.95]"])


def test_a_model_without_a_task_has_one_that_trains_its_stacks():
    def task(config):
        return compose(config)["task"]["name"]

    assert task(BERT) == task(["model=encoder"]) == "masked_language_modeling"
    assert task({"model": {"encoder": {}, "decoder": None}}) == "masked_language_modeling"
    assert task({"model": "encoder_decoder"}) == "denoising"
    assert task({"model": "decoder"}) == task({}) == "language_modeling"
    sizes = compose({"model": "encoder"})["model"]
    assert sizes["dim"] == compose({})["model"]["dim"]  # not the defaults of the task's run
    with pytest.raises(ConfigError, match="'language_modeling' cannot train a model of encoder"):
        compose({"model": "encoder", "task": "language_modeling"})


def test_a_command_line_that_trains_names_its_task():
    with pytest.raises(ConfigError, match="'language_modeling' cannot train a model of encoder"):
        preflight(["model=encoder"])


def test_build_takes_each_form_of_a_config():
    mapping = {"model": {"name": "encoder", "dim": 16, "layers": 1}, "attn": {"heads": 2}}
    ids = torch.arange(6)[None]
    forms = mapping, compose(mapping), OmegaConf.create(mapping), OmegaConf.create(compose(mapping))
    first, *others = (build(config, vocab_size=65)(ids) for config in forms)
    assert all(torch.equal(first, other) for other in others)
