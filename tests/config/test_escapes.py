"""A text of any characters has one form in a command line, and every place reads it back."""

import random
import shlex

import pytest

from xformer_kit.config import compose, config_yaml
from xformer_kit.config.line.overrides import INSTRUCTIONS, instructions, parse_word
from xformer_kit.config.line.to_overrides import to_overrides
from xformer_kit.config.saved.config_file import parse_config
from xformer_kit.text.command_lines import for_shell, override_text, resume, value

PIECES = [
    *("\\", "${", "}", "$", "x", "'", '"', ",", ":", "=", " ", "[", "]", "{", "(", ")", "\t", "\n"),
    *("é", "😀", "\u2028", "\x85", "%", "~", "#", "/", "-", "+", "*", "?", "!", "`", "&", "@", "|"),
    *("null", "true", "yes", "inf", "1e3", "1_0", "007", "0x1", "1:30", "2020-01-01", "<<", ">"),
    *("${x}", "\\${", "${now:%Y}", ".", "???x"),
]


def texts(seed: int, count: int) -> list[str]:
    """All pieces, "", and random texts of up to six of them."""
    rng = random.Random(seed)
    return [
        *PIECES,
        "",
        *("".join(rng.choices(PIECES, k=rng.randint(2, 6))) for _ in range(count)),
    ]


@pytest.fixture(scope="module")
def data():
    """A valid line apart from its texts."""
    return ["data=text", "logger=none", "init_from.run=r"]


@pytest.mark.extended
def test_a_text_in_a_line_is_that_of_the_config_and_of_the_saved_config(data):
    """Also below a list and after it was proposed again, as by xformer reproduce."""
    every = texts(0, 200)
    config = compose(
        [*data, "data.path='x'", f"init_from.allow={override_text(every)}"], data=False
    )
    assert config["init_from"]["allow"] == every
    saved = parse_config(config_yaml(config), "config.yaml")
    assert saved == config
    assert compose(to_overrides(saved), data=False) == config


@pytest.mark.extended
@pytest.mark.parametrize("text", ["a${x}b.txt", "\\${", "\\\\${oc.env:HOME}\\", "it's ${", "1e3"])
def test_a_text_is_a_single_value_too(text, data):
    config = compose([*data, f"data.path={value(text)}"], data=False)
    assert config["data"]["path"] == text
    assert compose(to_overrides(config), data=False) == config


def test_an_instruction_is_read_as_a_value_of_the_config_and_a_shell_changes_nothing():
    for text in texts(1, 40):
        words = shlex.split(resume(text, components=[text]), posix=True)
        assert words[-1] == f"resume={value(text)}"
        assert shlex.split(for_shell(text)) == [text]
        for key in INSTRUCTIONS:
            word = f"{key}={override_text([text])}"
            assert instructions(parse_word(word)) == {key: [text]}


def test_an_experiment_and_an_interpolation_have_the_names_that_the_line_has(tmp_path, data):
    file = tmp_path / "a${x} 'b'.yaml"
    file.write_text("model: {dim: 64}\ndata: {path: 'c\\${x}', cache: '${data.path}${seed}'}")
    config = compose([*data, f"experiment={value(str(file))}"], data=False)
    assert (config["model"]["dim"], config["data"]["path"]) == (64, "c${x}")
    assert config["data"]["cache"] == "c${x}0"
