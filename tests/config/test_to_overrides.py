"""A config as a command line: composed again, it is the same."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from xformer_kit.config import compose
from xformer_kit.config.line.to_overrides import to_overrides
from xformer_kit.registry import ConfigError
from xformer_kit.text.command_lines import override_text

TEXTS = [
    "x",
    "32",
    "1e3",
    "true",
    "null",
    "",
    " a",
    "it's",
    "C:\\a b\\",
    "a\\'b",
    "\\",
    "x,y",
    "[1]",
    "a#b",
    "ä",
]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], []),
        (
            ["seed=3", "model.dim=64", "placement=post"],
            ["placement=post", "seed=3", "model.dim=64"],
        ),
        (["task=masked_language_modeling"], ["task=masked_language_modeling"]),
        (
            ["attn.score=entmax", "attn.score.alpha=1.3"],
            ["attn.score={name:entmax,alpha:1.3}"],
        ),
        (["schedule=cosine", "logger=none"], ["logger=none"]),
    ],
)
def test_choices_of_groups_come_before_single_values(words, expected):
    assert to_overrides(compose(words, data=False)) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["experiment=ngpt"],
        ["task_defaults=null", "ffn=mlp", "position=none"],
        ["data=text", r"data.path='it\'s \ here, [1]'", "optim.betas=[0.9,0.95]"],
        [
            "model.decoder.pattern=[base,far]",
            "model.decoder.variants.far={mask: {name: sliding_window, window: 4}}",
        ],
    ],
)
def test_the_overrides_compose_the_same_config(words):
    config = compose(words, data=False)
    assert compose(to_overrides(config), data=False) == config


def test_values_that_a_run_does_not_use_have_no_override():
    """An experiment may say more than its run reads; a command line may not."""
    config = compose(["experiment=copy"])
    words = to_overrides(config)
    assert not any(word.startswith("tokenizer") for word in words)
    assert compose(words) | {"tokenizer": None} == config | {"tokenizer": None}


def test_1_and_1_0_are_different_values():
    """The hash of a config tells them apart."""
    config = compose(data=False)
    config["model"]["residual_multiplier"] = 1
    assert to_overrides(config) == ["model.residual_multiplier=1"]


def test_values_are_read_back_as_they_are():
    parser = OverridesParser.create()
    for value in (*TEXTS, TEXTS, {"a": TEXTS, "b": {"c": None}}, 1, 1.0, 1e-5, True, None, []):
        read = parser.parse_override(f"x={override_text(value)}").value()
        assert (read, type(read)) == (value, type(value))


def test_a_config_of_another_version_has_no_command_line():
    config = compose(data=False)
    config["placement"]["name"] = "gone"
    with pytest.raises(ConfigError, match=r"placement: Unknown placement 'gone'|placement.*'gone'"):
        to_overrides(config)
