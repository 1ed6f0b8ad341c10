"""Overrides that Hydra cannot read, that contradict each other, or that have the names of another
library.
"""

import re
import shlex

import pytest

from xformer_kit import ConfigError, build, compose
from xformer_kit.config import preflight
from xformer_kit.config.line.repeated_keys import repeated_key
from xformer_kit.ffn.activations import ACTIVATIONS


def faults_of(*words):
    with pytest.raises(ConfigError) as error:
        preflight(list(words))
    return error.value.messages


@pytest.mark.parametrize("line", ["attn.heads = 8", "attn.heads =8"])
def test_words_with_spaces_around_their_equals_sign(line):
    found = faults_of("model.dim=32", *line.split())
    assert found[0] == (
        "attn.heads: cannot be read as key=value. Give it a value, without spaces around the =:"
        " attn.heads=VALUE."
    )
    assert found[-1].endswith(": must be key=value.")


@pytest.mark.parametrize("words", [("hydra.job.name=", "attn.heads=2"), ("attn.heads=2", "name=a")])
def test_an_empty_text_is_not_joined_with_the_next_word(words):
    assert len(preflight([*words]).configs) == 1


def test_each_flag_of_another_program_is_reported_with_its_value():
    see = "See python train.py --help."
    fix = "is no flag. Options are written without dashes:"
    assert faults_of("--n_layer=4", "--learning_rate", "5e-5", "--dry-run") == (
        f"--n_layer=4: {fix} model.layers=4. {see}",
        f"--learning_rate: {fix} optim.lr=VALUE. {see}",
        "--dry-run: only a study has a dry run. Set study.dry_run=true for a study; for a run --cfg"
        " job prints the config and xformer describe its cost.",
    )


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("attn heads=8", ". Quote what the shell or Hydra treats specially."),
        (
            "attn.heads",
            ". Give it a value, without spaces around the =: attn.heads=VALUE.",
        ),
        ("mine.yaml", ". Try experiment=mine.yaml, or study=mine.yaml."),
        (
            "attn.heads=[2",
            (
                ": no viable alternative at input '[2'. Quote what the shell or Hydra treats"
                " specially."
            ),
        ),
        (
            "name=a = b",
            ": mismatched input ' = ' expecting <EOF>. Hydra reads such a text in quotes:"
            " \"name='a = b'\".",
        ),
    ],
)
def test_other_words_that_cannot_be_read_name_no_class_of_the_parser(word, reason):
    assert faults_of(word) == (f"{word}: cannot be read as key=value{reason}",)


NAMES = ["é.txt", "a=b.txt", "a'b.txt", "a[b].txt", "a#b.txt", "a{b}", "a!b", "x'"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compose_line", [preflight, compose])
def test_the_form_that_is_proposed_for_a_text_is_read_as_it(
    name, compose_line, tmp_path, monkeypatch
):
    """And the option that could not be read has no other fault."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("a text")
    with pytest.raises(ConfigError) as error:
        compose_line(["data=text", f"data.path={name}"])
    (message,) = error.value.messages
    typed = shlex.split(re.search(r"(?:: )(['\"].*)\.$", message)[1])
    assert compose(["data=text", *typed])["data"]["path"] == name


def test_only_the_option_of_an_unreadable_word_has_no_other_fault():
    first, *others = faults_of("data=text", "data.path=é", "attn.heads=7", "ffn.widht=3", "seed=x")
    assert first.startswith("data.path=é: cannot be read as key=value")
    assert {fault.partition(":")[0] for fault in others} == {"ffn.widht", "seed", "attn.heads"}


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("trainer.max_steps=100 trainer.max_steps=200", "trainer.max_steps"),
        ("trainer.max_steps=100 +trainer.max_steps=200", "trainer.max_steps"),
        ("-m attn.heads=2,4 attn.heads=8", "attn.heads"),
        ("-m attn.heads=8 attn.heads=2,4", "attn.heads"),
        ("position=alibi position=t5", "position"),
        ("study=norm_placement study.seeds=2 study.seeds=3", "study.seeds"),
        ("'attn={name: latent, heads: 2}' attn.heads=4", "attn.heads"),
    ],
)
def test_a_key_that_is_given_twice(line, key):
    assert [fault.partition(";")[0] for fault in faults_of(*shlex.split(line))] == [
        f"{key}: is given more than once"
    ]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (["extra={token_shift: {tokens: 1}, token_shift: {tokens: 2}}"], "token_shift"),
        (["+extra={token_shift: {tokens: 1,tokens: 2}}"], "tokens"),
        (["position={name: rotary, name: alibi}"], "name"),
        (["-m", "position={name: rotary, theta: 5, theta: 6}"], "theta"),
        (["-m", "extra={unet: {}, unet: {}},{}"], "unet"),
        (["model.decoder.mask={name: full, name: causal}"], "name"),
        (["model.decoder.layout=[attn, {ffn: {width: 3, width: 4}}]"], "width"),
        (["study=norm_placement", "study.tune={a: [1], a: [2]}"], "a"),
    ],
)
def test_a_key_that_a_mapping_has_twice(line, key):
    path = line[-1].lstrip("+").partition("=")[0]
    assert faults_of(*line)[0] == (
        f"{path}: the key {key} is given more than once; got {line[-1]}. Keep one of them."
    )


def test_a_repeated_key_is_reported_with_the_other_faults():
    line = ["attn.gate={name: head, name: none}", "ffn.widht=3"]
    assert [fault.partition(":")[0] for fault in faults_of(*line)] == ["attn.gate", "ffn.widht"]
    with pytest.raises(
        ConfigError, match=r"^ffn: the key width is given more than once; got ffn={"
    ):
        compose(["ffn={width: 3, width: 4}"])


@pytest.mark.parametrize(
    "word",
    [
        "model.decoder.layout=[{ffn: {width: 8}}, {ffn: {width: 8}}]",
        "extra={token_shift: {tokens: 1}, unet: {}}",
        "model.decoder.variants={a: {mask: full}, b: {mask: full}}",
        "name='{a: 1, a: 2}'",
    ],
)
def test_a_key_that_several_mappings_have_is_not_given_twice(word):
    assert repeated_key(word) is None


def test_a_choice_and_its_options_are_not_given_twice():
    assert len(preflight(["position=rotary", "position.theta=5"]).configs) == 1
    assert (
        compose(["attn.heads=2", "attn.heads=4"])["attn"]["heads"] == 4
    )  # in Python the last one counts


@pytest.mark.parametrize("value", ["[rms,layer]", "null", "[]"])
def test_a_group_takes_one_name(value):
    (fault,) = faults_of(f"norm={value}")
    assert fault.startswith("norm: must be a name; got ")
    assert fault.endswith(". Known: derf, dyt, l2, layer, none, rms, scale.")


def test_a_warm_up_that_is_as_long_as_the_run():
    sentence = (
        "schedule.warmup: must be below the steps of the run, or the learning rate never reaches"
        " optim.lr; got 100 and 100. Try schedule.warmup=10."
    )
    assert faults_of("schedule.warmup=100", "trainer.max_steps=100") == (sentence,)
    assert len(preflight(["schedule.warmup=99", "trainer.max_steps=100"]).configs) == 1
    assert (
        len(preflight(["trainer.max_steps=10"]).configs) == 1
    )  # nobody gave a warm-up: the run prints the sentence and trains
    (fault,) = faults_of("-m", "schedule.warmup=5,500", "trainer.max_steps=100")
    assert fault.endswith("got 500 and 100. Try schedule.warmup=10. [job schedule.warmup=500]")
    with pytest.raises(ConfigError, match=r"schedule\.warmup: must be below"):
        compose(["schedule.warmup=100", "trainer.max_steps=100"])


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("swish", "silu"),
        ("SiLU", "silu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("quick_gelu", "gelu_quick"),
        ("linear", "identity"),
    ],
)
def test_activations_that_transformers_calls_otherwise(name, here):
    """The proposed one computes the same as that of transformers.activations."""
    assert faults_of(f"ffn.activation={name}")[0].startswith(
        f"ffn.activation: no choice is called '{name}'. Did you mean '{here}'? Known: "
    )
    theirs = pytest.importorskip("transformers.activations").ACT2FN
    torch = pytest.importorskip("torch")
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[here](x), theirs[name.lower()](x))


@pytest.mark.parametrize("key", ["gradient_checkpointing", "activation_checkpointing"])
def test_activation_checkpointing_has_another_name(key):
    assert faults_of(f"trainer.{key}=true") == (
        f"trainer.{key}: is called model.checkpoint_activations here; got true. Try"
        " model.checkpoint_activations=block.",
    )


@pytest.mark.parametrize(
    ("name", "path", "kind"),
    [
        ("gpt2", "openai-community/gpt2", "bpe"),
        ("t5", "google-t5/t5-small", "unigram"),
        ("bert", "google-bert/bert-base-uncased", "wordpiece"),
    ],
)
def test_a_models_name_is_no_tokenizer_that_is_learned(name, path, kind):
    assert faults_of(f"tokenizer={name}") == (
        (
            f"tokenizer: '{name}' is a tokenizer that is trained already: tokenizer=pretrained"
            f" tokenizer.path={path}. tokenizer={kind} learns one of that kind from your text."
        ),
    )


def test_all_tasks_that_train_a_model_are_proposed():
    (fault,) = faults_of("model=encoder_decoder")
    ways = fault.partition("Choose ")[2].rstrip(".").replace(" or ", ", ").split(", ")
    tasks = [way.split()[0] for way in ways]
    assert tasks == [
        "task=seq2seq",
        "task=denoising",
        "task=text_infilling",
        "task=mixture_of_denoisers",
        "model=decoder",
    ]
    for way in ways[:-1]:
        assert len(preflight(["model=encoder_decoder", *way.split()]).configs) == 1


@pytest.mark.parametrize("name", [None, "\ud800", "", 3, True, "a\x1bb"])
def test_a_variant_has_a_name_that_can_be_saved_and_shown(name):
    config = compose([])
    config["model"]["decoder"] = {
        "pattern": [name, "base"],
        "variants": {name: {"position": "alibi"}},
    }
    with pytest.raises(ConfigError) as error:
        build(config, 65)
    rule = "a variant's name must be a text of printable characters; got "
    if not isinstance(name, str):
        rule = "the keys of a config are names; got "
    assert any(rule in fault for fault in error.value.messages)


def test_a_null_key_is_refused(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\nmodel:\n  decoder:\n    variants: {null: {}}\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    (fault,) = faults_of("--config-dir", str(tmp_path), "experiment=mine")
    assert fault.startswith(f"{tmp_path}/experiment/mine.yaml: cannot be read: Incompatible key")
    for word in ("model.decoder={variants: {null: {}}}", "model.decoder.variants={null: {}}"):
        (fault,) = faults_of(word)
        key = word.partition("=")[0]
        assert fault.startswith(f"{key}: cannot be composed: Error merging override ++{key}=")


def test_a_file_after_a_flag_of_other_programs_is_an_experiment():
    assert faults_of("model.dim=32", "--config", "mine.yaml") == (
        "--config: a file of options is an experiment here. Try experiment=FILE.yaml.",
    )
