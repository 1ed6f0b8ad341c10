"""Names that the field uses compose to the canonical component, with the options they imply."""

import pytest

from xformer_kit import ConfigError
from xformer_kit.config.line.command_line import preflight
from xformer_kit.config.line.composition import compose
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.registry import REQUIRED, Context, Registry

ALL = GROUPS | MAPPING_GROUPS | NESTED_GROUPS
ALIASES = [
    (group, other)
    for group, registry in ALL.items()
    if registry.also_called
    for other in registry.aliases
]


def refused(words, config_dir=None):
    with pytest.raises(ConfigError) as error:
        compose(words, config_dir=config_dir, data=False)
    return list(error.value.messages)


@pytest.mark.parametrize(
    ("words", "canonical"),
    [
        ("position=rope", "position=rotary"),
        ("attn=gqa attn.kv_heads=2", "attn.kv_heads=2"),
        ("attn=mqa", "attn.kv_heads=1"),
        ("attn=mqa attn.kv_heads=1", "attn.kv_heads=1"),
        ("norm=rmsnorm norm.eps=0.1", "norm=rms norm.eps=0.1"),
        ("norm=layernorm", "norm=layer"),
        ("ffn=swiglu", "ffn=glu ffn.activation=silu"),
        ("ffn=geglu", "ffn=glu ffn.activation=gelu"),
        ("mask=swa mask.window=16", "mask=sliding_window mask.window=16"),
        ("optim=adam_w", "optim=adamw"),
        ("attn=xsa", "attn=exclusive"),  # of the zoo, which is not imported before
        ("attn.name=linear", "attn=linear"),
        ("attn={name: mqa, bias: true}", "attn.kv_heads=1 attn.bias=true"),
        ("attn.gate=headwise", "attn.gate=head"),
        ("attn.gate=headwise attn.gate.of=both", "attn.gate=head attn.gate.of=both"),
        ("attn.score=sparsemax", "attn.score={name: entmax, alpha: 2.0}"),
        ("mask=any_of mask.of=[swa,causal]", "mask=any_of mask.of=[sliding_window,causal]"),
        ("task=mlm", "task=masked_language_modeling"),
        ("extra.drop_path.rate=0.1", "extra.stochastic_depth.rate=0.1"),
        (
            "model.decoder.pattern=[a] model.decoder.variants.a={attn: mqa,"
            " position: {name: rope}}",
            "model.decoder.pattern=[a] model.decoder.variants.a={attn: {name: multi_head,"
            " kv_heads: 1}, position: {name: rotary}}",
        ),
        ("model.decoder.mask=swa", "model.decoder.mask=sliding_window"),
        (
            "model.decoder.layout=[attn,{ffn: swiglu}]",
            "model.decoder.layout=[attn,{ffn: {name: glu, activation: silu}}]",
        ),
    ],
)
def test_another_name_is_the_component(words, canonical):
    def config(line):
        return compose(_split(line), data=False)

    assert config(words) == config(canonical)


def _split(line):
    """Splits a line at the spaces that are not within brackets."""
    words, depth = [""], 0
    for letter in line:
        depth += (letter in "{[") - (letter in "}]")
        if letter == " " and not depth:
            words.append("")
        else:
            words[-1] += letter
    return words


def test_another_name_in_a_file(tmp_path):
    (tmp_path / "experiment").mkdir()
    for name, lines in {
        "chosen": "defaults: [override /position: rope, override /attn: mqa]\n",
        "own": "defaults: [override /position: rotary]\nattn: {kv_heads: 1}\n",
        "named": "attn: {name: mqa}\n",
    }.items():
        (tmp_path / "experiment" / f"{name}.yaml").write_text(f"# @package _global_\n{lines}")
    chosen, own, named = (
        compose([f"experiment={name}"], config_dir=str(tmp_path))
        for name in ("chosen", "own", "named")
    )
    assert chosen == own == named


def test_a_name_over_the_options_of_another_component_is_refused(tmp_path):
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text("# @package _global_\nffn: {name: mlp}\nmask: {name: sliding_window}\n")
    assert refused(["experiment=mine"], str(tmp_path)) == [
        "ffn.name: is set over the options of 'glu'; got 'mlp'. Choose it with ffn=mlp, in a file"
        " with `defaults: [override /ffn: mlp]`."
    ]
    assert compose(["experiment=mine", "ffn=mlp"], str(tmp_path)) == compose(
        ["mask=sliding_window", "ffn=mlp"]
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["attn=mqa", "attn.kv_heads=2"],
            "attn.kv_heads: 'mqa' is multi_head with kv_heads=1; got 2. Leave one of them out, or"
            " name 'multi_head'.",
        ),
        (
            ["model.decoder.ffn={name: swiglu, activation: gelu}"],
            "model.decoder.ffn.activation: 'swiglu' is glu with activation='silu'; got gelu. Leave"
            " one of them out, or name 'glu'.",
        ),
        (
            ["attn=gqa"],
            "attn.kv_heads: attn 'multi_head' needs this option. Give it key and value heads,"
            " such as 2.",
        ),
    ],
)
def test_an_option_does_not_contradict_the_name(words, sentence):
    assert refused(words) == [sentence]


@pytest.mark.parametrize(
    ("word", "second", "first", "component"),
    [
        ("callbacks={a: {name: norms}, b: {name: norms}}", "b", "a", "callback 'norms'"),
        ("metrics={top_k: {k: 1}, topk: {k: 2}}", "topk", "top_k", "metric 'top_k_accuracy'"),
        (
            "extra={token_shift: {}, a: {name: token_shift}}",
            "a",
            "token_shift",
            "extra 'token_shift'",
        ),
    ],
)
def test_two_keys_of_one_component_are_refused(word, second, first, component):
    """The run has one of them: the other would be left out."""
    group = word.partition("=")[0]
    assert refused([word]) == [
        f"{group}.{second}: is the {component}, as {group}.{first} is; a run has one of each."
        " Leave one out, or register a subclass of your own under another name."
    ]


def test_a_component_that_is_null_under_another_name_is_left_out():
    assert compose(["metrics={accuracy: {}, acc: null}"], data=False)["metrics"] == {}


@pytest.mark.extended
def test_a_sweep_over_other_names_is_checked_job_by_job():
    assert len(preflight(["-m", "attn=mha,mqa", "ffn=swiglu,geglu,mlp"]).configs) == 6
    with pytest.raises(ConfigError, match=r"needs this option.*\[job attn=gqa\]"):
        preflight(["-m", "attn=mha,gqa"])


@pytest.mark.parametrize("word", ["mask=local", "ffn=gated", "tokenizer=gpt2", "norm=LayerNorm"])
def test_a_name_that_is_only_similar_is_answered(word):
    [sentence] = refused([word])
    assert "Did you mean '" in sentence or "tokenizer=pretrained" in sentence


def test_another_name_implies_options_that_the_component_has():
    for group, other in ALIASES:
        registry = ALL[group]
        alias = registry.aliases[other]
        assert other not in registry
        set_to = {key: value for key, value in alias.implied.items() if value != REQUIRED}
        assert alias.implied.keys() <= registry.options(alias.name).keys(), f"{group}={other}"
        faults = registry.faults({"name": alias.name} | set_to, group, Context())
        assert not [f for f in faults if f.path.split(".")[-1] in set_to], f"{group}={other}"


def test_a_component_of_ones_own_with_another_components_other_name_is_itself():
    registry = Registry("hat")
    registry.register("top", also_called=("tall",))(lambda: None)
    registry.register("tall")(lambda: 1)
    assert registry.alias("tall") is None
    assert registry.unknown("tal").fix.startswith("Did you mean 'tall'?")
